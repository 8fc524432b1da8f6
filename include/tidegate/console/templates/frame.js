// Airflow shows this page in a frame that may neither leave it nor open another page. What is same-origin may:
// a link to Airflow is followed by the page around the frame. And the frame has that page's colours.
(() => {
  const outer = window.parent;
  if (outer === window) return;
  const theme = () => {
    const names = outer.document.documentElement.classList;
    const chosen = ["dark", "light"].find((name) => names.contains(name));
    if (chosen) document.documentElement.dataset.theme = chosen;
  };
  try {
    theme();
    new MutationObserver(theme).observe(outer.document.documentElement, { attributeFilter: ["class"] });
  } catch {
    return; // another origin frames it: it stays as it is
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-leave]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const twin = outer.document.createElement("a");
    twin.href = link.href;
    outer.document.body.append(twin);
    twin.click();
    twin.remove();
  });
})();
