// In JupyterLab, what a slider moves can be dragged in the picture of the widget above the script.
// `display.py` inserts the ends of the handle and the number of steps.
const here = document.currentScript.parentElement;
const widget = here.closest(".jp-OutputArea-child")?.previousElementSibling;
if (!widget) return;
const [first, last] = ENDS;
const drag = event => {
    const svg = event.buttons && event.target.closest("svg");
    if (!svg) return;
    const {left, width} = svg.getBoundingClientRect();
    const share = ((event.clientX - left) / width - first) / (last - first);
    widget.querySelector(".noUi-target").noUiSlider.set(share * STEPS);
    event.preventDefault();
};
widget.addEventListener("pointerdown", drag);
widget.addEventListener("pointermove", drag);
widget.style.touchAction = "pan-y";
here.append("You can also drag the dashed line.");
