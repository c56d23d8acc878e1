"""What can go wrong between two calls, one class a kind.

Every message says what was asked, what was found, and what to do. All are `ValueError`s, so callers that
catch broadly keep working.
"""


class CacheError(ValueError):
    """A call does not fit the state it continues from. The state is as it was before the call."""


class EmptyCacheError(CacheError):
    """A state was asked for, but nothing has been fed yet."""


class PositionError(CacheError):
    """The position asked for is not the next one."""


class DepthError(CacheError):
    """A state of a model with another number of layers."""


class BatchError(CacheError):
    """Rows or channels of the input and the state disagree."""


class DeviceError(CacheError):
    """Input, state and weights are not on one device."""


class DtypeError(CacheError):
    """A tensor has a dtype that this call cannot use."""


class RewindError(CacheError):
    """The state cannot go back to the column asked for."""


class FingerprintError(CacheError):
    """A state of other weights."""


class CacheFileError(CacheError):
    """A file is not a whole, unchanged cache."""


class ConfigError(ValueError):
    """An option that would not be honoured; better refused at construction than ignored."""
