"""What tests in a browser run in a page, and the grounds that a page may have."""

THEMES = {"light": "background:#fff;color:#222", "dark": "background:#14181e;color:#ced6dd"}

# Code is thousands of coloured words, formulas are thousands of shapes: some of each will do.
THIN = """() => {
  const seen = new Set();
  for (const word of document.querySelectorAll("pre span, dt.sig span, dt.sig em")) {
    const kind = [word.tagName, word.className, word.parentElement.tagName].join();
    if (seen.has(kind)) word.replaceWith(...word.childNodes);
    seen.add(kind);
  }
  for (const formula of [...document.querySelectorAll("mjx-container")].slice(9)) formula.remove();
  document.body.normalize();
}"""
