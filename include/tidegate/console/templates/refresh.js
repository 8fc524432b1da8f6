// While a run is at work the page is loaded again. A person who types or selects text is not interrupted.
document.addEventListener("DOMContentLoaded", () => {
  const note = document.querySelector("[data-refresh]");
  if (!note) return;
  const timer = setInterval(() => {
    const isTyping = document.activeElement?.matches("input, select");
    const isSeen = document.visibilityState === "visible";
    if (isSeen && !isTyping && !String(getSelection())) location.reload();
  }, 1000 * Number(note.dataset.refresh));
  note.querySelector("button").addEventListener("click", () => {
    clearInterval(timer);
    note.textContent = "A run was at work when this page was loaded.";
  });
});
