"""Find a Chromium for the browser tests; as root on Debian, install one.

    python tools/browser.py
"""
import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATHS = ("/Applications/Chromium.app/Contents/MacOS/Chromium",
         "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
         r"C:\Program Files\Google\Chrome\Application\chrome.exe")
MISSING = "no Chromium or Chrome was found: the browser tests need one; install it and run the tests again"


def find():
    """Return the path of a Chromium or Chrome, or None."""
    found = [shutil.which(name) for name in NAMES] + [path for path in PATHS if os.path.exists(path)]
    return next((path for path in found if path), None)


def in_ci():
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def is_root():
    return hasattr(os, "geteuid") and os.geteuid() == 0


def can_install():
    """True when this is root on a system with apt-get."""
    return is_root() and shutil.which("apt-get") is not None


def install():
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "-qq", "update"],
                    ["apt-get", "-qq", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]):
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)


def main():
    if find() is None and can_install():
        print("Chromium is not installed: installing it from the system's packages.")
        install()
    if find() is None:
        print(f"Browser: {MISSING}.")
        return 1 if in_ci() else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
