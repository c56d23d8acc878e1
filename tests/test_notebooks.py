"""The committed lessons: built from their sources, executed, readable. nbval compares their outputs (make test)."""
import re
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from tools import build_notebooks as builder

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PATH = re.compile(r"(?<![\w.:/<-])/(home|root|tmp|usr|opt|var|mnt|etc|work|Users)/|\b[A-Z]:\\\\?\w")
IMAGE = re.compile(r"<(?:img|svg)\b[^>]*>")
NAMED = re.compile(r"""(alt|aria-label)\s*=\s*("[^"]*\w[^"]*"|'[^']*\w[^']*')""")


def texts(output):
    """Return the texts of an output that a reader sees: streams, text, HTML, an error's message."""
    data = output.get("data", {})
    return [output.get("text", ""), output.get("evalue", ""), *output.get("traceback", []),
            *(value for kind, value in data.items() if kind.startswith("text/"))]


def cell_faults(cell):
    """Return what is wrong with one cell, in words."""
    tags, faults = cell.metadata.get("tags", []), []
    if cell.cell_type == "markdown":
        faults += [f"picture without a text: {each}" for each in re.findall(r"!\[\s*\]\([^)]*\)", cell.source)]
        faults += [f"picture without a text: {each}" for each in IMAGE.findall(cell.source) if not NAMED.search(each)]
    if PATH.search(cell.source):
        faults.append("absolute path in the text")
    if cell.cell_type != "code" or not cell.source.strip():
        return faults
    lines = cell.source.splitlines()
    if cell.execution_count is None:
        faults.append("never executed: nbval would compare nothing")
    if any(line.rstrip().endswith(";") for line in lines):
        faults.append("a line ends with ';': nbval does not honour it; write _ = ...")
    if "NBVAL_" in cell.source:
        faults.append("nbval is told not to look")
    if len(lines) > 20 and "exercise" not in tags:
        faults.append(f"{len(lines)} lines; at most 20")
    for output in cell.outputs:
        faults += output_faults(output, tags)
    return faults


def output_faults(output, tags):
    faults, html = [], "".join(output.get("data", {}).get("text/html", ""))
    if output.output_type == "error" and "raises-exception" not in tags:
        faults.append(f"raises {output.ename}")
    if output.get("name") == "stderr":
        faults.append("writes to stderr")
    if any(PATH.search(text) for text in texts(output)):
        faults.append("absolute path in the output")
    pictures = IMAGE.findall(html)
    faults += [f"picture without a text: {each[:60]}" for each in pictures if not NAMED.search(each)]
    if any(kind.startswith("image/") for kind in output.get("data", {})) and not pictures:
        faults.append("image output: JupyterLab shows it without a text; show HTML with <img alt=...>")
    return faults


def faults(notebook):
    """Return what is wrong with a notebook: a line for each fault, with the place of its cell."""
    found = [f"cell {place}: {fault}" for place, cell in enumerate(notebook.cells) for fault in cell_faults(cell)]
    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) < len(ids):
        found.append("cell ids are missing or not unique")
    if not any(cell.get("outputs") for cell in notebook.cells):
        found.append("no cell has an output")
    return found


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_is_sound(path):
    assert faults(nbformat.read(path, as_version=4)) == []
    assert path.stat().st_size < 3_000_000


def test_lessons_are_those_of_their_sources():
    assert builder.drift(ROOT / "notebooks" / "source", ROOT / "notebooks") == []


def code(source="x = 1\nprint(x)", outputs=None, tags=(), count=1):
    outputs = [nbformat.v4.new_output("stream", text="1\n")] if outputs is None else outputs
    return nbformat.v4.new_code_cell(source, outputs=outputs, execution_count=count, metadata={"tags": list(tags)})


def shown(**data):
    data = {kind.replace("_", "/"): value for kind, value in data.items()}
    return [nbformat.v4.new_output("display_data", data=data)]


ERROR = [nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=["no"])]
MARKDOWN = nbformat.v4.new_markdown_cell


@pytest.mark.parametrize("cell", [
    code(), code(outputs=[]), code("", count=None), code("\n".join(["x = 1"] * 21), tags=["exercise"]),
    code(outputs=ERROR, tags=["raises-exception"]), code(outputs=shown(text_html='<img src="x" alt="a line">')),
    code(outputs=shown(image_png="AA", text_html="<img alt='a line' src='x'>")),
    code(outputs=shown(text_html='<svg role="img" aria-label="a line"></svg>')),
    MARKDOWN("![a line](x.png) and/or 3/4, and https://example.org/tmp/x")])
def test_lint_accepts(cell):
    assert cell_faults(cell) == []


@pytest.mark.parametrize("cell, fault", [
    (code(count=None), "never executed"), (code("plot(x);"), "ends with ';'"), (code("# NBVAL_SKIP"), "told not"),
    (code("\n".join(["x = 1"] * 21)), "at most 20"), (code(outputs=ERROR), "raises ValueError"),
    (code("open('/home/a/b')"), "absolute path in the text"), (MARKDOWN("see C:\\Users"), "absolute path"),
    (code(outputs=[nbformat.v4.new_output("stream", text="/usr/lib/x")]), "absolute path in the output"),
    (code(outputs=[nbformat.v4.new_output("stream", name="stderr", text="careful")]), "stderr"),
    (code(outputs=shown(image_png="AA")), "image output"), (code(outputs=shown(text_html="<img src='x'>")), "picture"),
    (code(outputs=shown(text_html="<img alt='' src='x'>")), "picture"), (MARKDOWN("![](x.png)"), "picture")])
def test_lint_finds(cell, fault):
    found = cell_faults(cell)
    assert len(found) == 1 and fault in found[0]


def test_lint_of_the_whole_notebook():
    same = [code(), code()]
    same[1]["id"] = same[0]["id"]
    notebook = nbformat.v4.new_notebook()
    notebook.cells = same      # set afterwards: nbformat would mend the ids
    assert faults(notebook) == ["cell ids are missing or not unique"]
    assert faults(nbformat.v4.new_notebook(cells=[code(outputs=[])])) == ["no cell has an output"]


# ---- the builder, on a small source

SOURCE = '''# %% [markdown]
# # A small lesson

# %% tags=["setup"]
import pathlib, ipywidgets
slider = ipywidgets.IntSlider()
slider

# %%
print(object(), pathlib.Path.cwd() / "x", pathlib.Path.home())

# %% tags=["raises-exception"]
raise ValueError("expected")
'''


@pytest.fixture
def small(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "small.py").write_text(SOURCE)
    return source, tmp_path, builder.build(source / "small.py", tmp_path)


def test_built_twice_has_the_same_bytes_and_no_trace_of_the_machine(small):
    source, folder, path = small
    first = path.read_bytes()
    assert builder.build(source / "small.py", folder).read_bytes() == first
    notebook = nbformat.read(path, as_version=4)
    assert [cell.get("execution_count") for cell in notebook.cells] == [None, 1, 2, 3]
    assert notebook.cells[1].metadata.tags == ["setup"] and "widgets" not in notebook.metadata
    assert notebook.cells[1].outputs[0].data["application/vnd.jupyter.widget-view+json"]["model_id"] == f"{0:032x}"
    assert notebook.cells[2].outputs[0].text == f"<object object at 0x{0:012x}> x .\n"
    assert faults(notebook) == []


@pytest.mark.parametrize("right, wrong", [("IntSlider()", "IntSlider(3)"), ('["setup"]', '["deeper"]'),
                                          ("small lesson", "tiny lesson"), ("# %%\nprint", "# %%\n1\n\n# %%\nprint")])
def test_drift_is_found(small, right, wrong):
    source, folder, _ = small
    assert builder.drift(source, folder) == []
    assert right in SOURCE
    (source / "small.py").write_text(SOURCE.replace(right, wrong))
    assert len(builder.drift(source, folder)) == 1


def test_drift_of_missing_files_is_found(small):
    source, folder, path = small
    path.rename(folder / "other.ipynb")
    assert [line.split(":")[0] for line in builder.drift(source, folder)] == ["other.ipynb", "small.py"]


def test_a_cell_that_fails_untagged_stops_the_build(tmp_path):
    (tmp_path / "broken.py").write_text("# %%\n1 / 0\n")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        builder.build(tmp_path / "broken.py", tmp_path)
    assert not (tmp_path / "broken.ipynb").exists()
