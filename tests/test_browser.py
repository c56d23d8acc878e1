"""Each lesson as a learner meets it: handed out, opened in JupyterLab, run, its sliders moved by keyboard.

Screenshots of every lesson stay in build/screenshots. In CI a missing browser is a failure; elsewhere it is one line.
"""
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tools import browser, handout

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]
SECOND = 1000      # playwright counts in milliseconds

# The cells of the open notebook; the page's own data, so it does not matter which cells are drawn.
READY = """() => {
  const panel = window.jupyterapp?.shell.currentWidget, kernel = panel?.sessionContext?.session?.kernel;
  return !!kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle'
    && panel.sessionContext.isReady;
}"""
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model.toJSON())"""
DONE = """() => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(prompt => prompt.innerText.trim());
  return kernel.status === 'idle' && !prompts.includes('[*]:');
}"""
CONTROLS = ".jp-OutputArea .noUi-handle, .jp-OutputArea .widget-text input[type=number]"
# Every control that belongs to a picture gets a mark; the picture is the one in the widget box around both.
MARK = """controls => {
  let count = 0;
  for (const control of document.querySelectorAll(controls)) {
    for (let box = control.closest('.widget-box'); box; box = box.parentElement.closest('.widget-box')) {
      if (box.querySelector('.widget-html img, .widget-html svg')) {
        control.dataset.control = count;
        box.dataset['box' + count++] = '';
        break;
      }
    }
  }
  return count;
}"""
VIEW = """n => [...document.querySelectorAll(`[data-box${n}] .widget-html`)].map(v => v.innerHTML).join()"""


def wait(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s for {what}")
        time.sleep(0.2)


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=2).status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def chromium():
    program = browser.find()
    if program is None:
        pytest.fail(browser.MISSING) if browser.in_ci() else pytest.skip(browser.MISSING)
    return program


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    """A JupyterLab of its own on the handed-out lessons; gives its address and token."""
    folder = tmp_path_factory.mktemp("lab")
    handout.hand_out(ROOT / "notebooks", folder / "work")
    page = folder / "config" / "labconfig" / "page_config.json"
    page.parent.mkdir(parents=True)
    page.write_text(json.dumps({"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}))
    tracker = folder / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    tracker.parent.mkdir(parents=True)
    tracker.write_text(json.dumps({"windowingMode": "none"}))      # draw every cell, also those out of view
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(folder / "config"), "OMP_NUM_THREADS": "1",
                   "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
                   "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces")}
    environment.pop("LABKIT_PROGRESS", None)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
               "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
               f"--ServerApp.root_dir={folder / 'work'}", "--LabApp.expose_app_in_browser=True",
               *(["--allow-root"] if browser.is_root() else [])]
    with open(folder / "log.txt", "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        wait(lambda: server.poll() is not None or answers(f"http://127.0.0.1:{port}/api?token={token}"), 90,
             "JupyterLab to answer")
        assert server.poll() is None, (folder / "log.txt").read_text()
        yield f"http://127.0.0.1:{port}", token
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def chrome(chromium):
    with sync_playwright() as playwright:
        program = playwright.chromium.launch(executable_path=chromium, headless=True, args=FLAGS)
        yield program
        program.close()


def run_all(page, lab, lesson):
    """Open a lesson, run all of its cells and wait until the last one is done; returns the cells as JSON."""
    address, token = lab
    page.set_default_timeout(120 * SECOND)
    page.goto(f"{address}/lab/workspaces/{Path(lesson).stem}/tree/{lesson}?token={token}&reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell")
    page.wait_for_function(READY)
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")      # returns after the last cell
    page.wait_for_function(DONE, timeout=180 * SECOND)
    return page.evaluate(CELLS)


def faults(cells):
    """Return a line for each cell that did not run, ended in an error without a tag for it, or wrote to stderr."""
    found = []
    for place, cell in enumerate(cells):
        if cell["cell_type"] == "code" and "".join(cell["source"]).strip() and cell["execution_count"] is None:
            found.append(f"cell {place} did not run")
        for output in cell.get("outputs", []):
            if output["output_type"] == "error" and "raises-exception" not in cell["metadata"].get("tags", []):
                found.append(f"cell {place}: {output['ename']}: {output['evalue']}")
            if output.get("name") == "stderr":
                found.append(f"cell {place} writes to stderr: {''.join(output['text'])[:200]}")
    return found


def press_until_changed(page, control, tries=25):
    """Move one control a step, or a step back when it stands at its end; True when its picture changed."""
    before = page.evaluate(VIEW, control)
    handle = page.locator(f'[data-control="{control}"]')
    upward = "ArrowRight" if "noUi-handle" in (handle.get_attribute("class") or "") else "ArrowUp"
    for key in (upward, upward.replace("Right", "Left").replace("Up", "Down")):
        handle.focus()
        page.keyboard.press(key)
        for _ in range(tries):
            page.wait_for_timeout(200)
            if page.evaluate(VIEW, control) != before:
                return True
    return False


def screenshots(page, lesson):
    """Save the whole notebook as pictures of one screen each."""
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{Path(lesson).stem}-*.png"):
        old.unlink()
    scroller = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer")
    height, screen = scroller.evaluate("e => [e.scrollHeight, e.clientHeight]")
    for number, top in enumerate(range(0, height, screen)):
        scroller.evaluate("(e, top) => e.scrollTo(0, top)", top)
        page.wait_for_timeout(300)
        page.screenshot(path=folder / f"{Path(lesson).stem}-{number:02}.png")


@pytest.fixture(scope="module", params=LESSONS)
def opened(request, chrome, lab):
    """One lesson after all its cells ran: its page and its cells."""
    context = chrome.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    cells = run_all(page, lab, request.param)
    screenshots(page, request.param)
    yield page, cells
    context.close()


def test_lesson_runs_without_errors(opened):
    page, cells = opened
    assert faults(cells) == []
    assert page.get_by_text("Click to show javascript error").count() == 0


def test_controls_move_the_picture(opened):
    page, cells = opened
    controls = page.evaluate(MARK, CONTROLS)
    assert controls == page.locator(CONTROLS).count()      # no slider without a picture
    stand_ins = ["".join(output.get("data", {}).get("text/html", ""))
                 for cell in cells for output in cell.get("outputs", [])]
    explorers = sum("to move the sliders" in html for html in stand_ins)      # what an Explorer shows without a kernel
    assert controls >= 2 * explorers and bool(controls) == bool(explorers)      # a slider and its field at least
    assert [control for control in range(controls) if not press_until_changed(page, control)] == []


def test_outputs_are_accessible(opened):
    """axe-core finds nothing in the outputs. Slider handles may have no name: each has a named field beside it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
               "rules": {"aria-input-field-name": {"enabled": False}}}
    result = axe.Axe().run(opened[0], context=".jp-OutputArea-output", options=options).response
    assert [(each["id"], [node["html"][:120] for node in each["nodes"]]) for each in result["violations"]] == []


REDRAW = "this.closest('.widget-box').querySelector('svg').id = this.value"


@pytest.mark.parametrize("reaction, moved", [(REDRAW, True), ("", False)])
def test_a_picture_that_stays_is_found(chrome, reaction, moved):
    context = chrome.new_context()
    page = context.new_page()
    page.set_content(f'''<div class="jp-OutputArea"><div class="widget-box">
        <label class="widget-text"><input type="number" value="1" oninput="{reaction}"></label>
        <div class="widget-html"><svg></svg></div></div></div>''')
    assert page.evaluate(MARK, CONTROLS) == 1
    assert press_until_changed(page, 0, tries=3) is moved
    context.close()


def test_a_cell_that_fails_is_found():
    error = {"output_type": "error", "ename": "ValueError", "evalue": "no"}
    cell = {"cell_type": "code", "metadata": {}, "source": "f()", "execution_count": 1, "outputs": [error]}
    assert faults([cell]) == ["cell 0: ValueError: no"]
    assert faults([{**cell, "metadata": {"tags": ["raises-exception"]}}]) == []
    assert faults([{**cell, "execution_count": None, "outputs": []}]) == ["cell 0 did not run"]
