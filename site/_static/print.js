// Paper shows the outputs that a page folds until its reader has guessed.
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details.hide")) folded.open = true;
});
