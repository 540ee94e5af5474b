/**
 * Focuses the content. It takes the focus for this once: were it focusable for good, a
 * click on any text would lead the Tab key back to its beginning.
 */
export function focusMain(): void {
  const main = document.getElementById("main");
  if (!main) return;
  main.tabIndex = -1;
  main.addEventListener("blur", () => main.removeAttribute("tabindex"), { once: true });
  main.focus();
}
