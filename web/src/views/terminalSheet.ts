// xterm writes its colours and sizes into elements <style>, which the page's policy
// refuses. The build puts this element in their place (see vite.config.ts): its text
// becomes a constructed sheet, which the policy allows, for as long as it is in the page.

export const sheetTag = "xterm-sheet";

class TerminalSheet extends HTMLElement {
  readonly #sheet = new CSSStyleSheet();
  #text = "";

  override get textContent(): string {
    return this.#text;
  }

  override set textContent(css: string) {
    this.#text = css;
    this.#sheet.replaceSync(css);
  }

  connectedCallback(): void {
    document.adoptedStyleSheets.push(this.#sheet);
  }

  disconnectedCallback(): void {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== this.#sheet);
  }
}

export function defineTerminalSheet(): void {
  if (!customElements.get(sheetTag)) customElements.define(sheetTag, TerminalSheet);
}
