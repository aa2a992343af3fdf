// JupyterLab goes on to the next cell and keeps it in place, so that outputs above it grow out of
// sight. "Run All" and an opened notebook stay where they are. A widget runs no scripts, so the
// script comes in an empty output below it. `cells.py` inserts the time and leaves this
// comment out.

let output = document.currentScript.closest(".jp-OutputArea-child");
const cell = output?.closest(".jp-Cell");
const isCurrent = [cell, cell?.nextElementSibling].some(
    each => each?.classList.contains("jp-mod-active"));
if (!isCurrent || Math.abs(Date.now() / 1000 - NOW) > 60) return;
if (!output.clientHeight) output = output.previousElementSibling;
const all = output.parentElement, height = cell.closest(".jp-WindowedPanel-outer").clientHeight;
const growth = new ResizeObserver(() => {
    const shown = all.clientHeight > height ? output : all;
    shown.scrollIntoView({block: shown.clientHeight > height ? "start" : "nearest"});
});
growth.observe(all);
for (const action of ["keydown", "pointerdown", "wheel"])
    addEventListener(action, () => growth.disconnect(), {capture: true, once: true});
