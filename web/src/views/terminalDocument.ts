// xterm writes its colours and sizes into elements <style>, and truecolour cells into
// style attributes; the page's policy refuses both. This document stands between: the
// text of a <style> goes into a constructed sheet, and a style attribute is set as a
// property, which is what the policy allows.

export function terminalDocument(real: Document): Document {
  const made = (tag: string): HTMLElement => {
    if (tag.toLowerCase() === "style") return sheetElement(real);
    const e = real.createElement(tag);
    if (tag.toLowerCase() === "span") {
      const set = e.setAttribute.bind(e);
      e.setAttribute = (name: string, value: string) => {
        if (name === "style") e.style.cssText = value;
        else set(name, value);
      };
    }
    return e;
  };
  return new Proxy(real, {
    get(target, key) {
      if (key === "createElement") return made;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? (value as (...args: unknown[]) => unknown).bind(target) : value;
    },
    set(target, key, value) {
      return Reflect.set(target, key, value, target);
    },
  });
}

function sheetElement(real: Document): HTMLElement {
  const sheet = new CSSStyleSheet();
  const e = real.createElement("template");
  let text = "";
  real.adoptedStyleSheets.push(sheet);
  Object.defineProperties(e, {
    textContent: {
      get: () => text,
      set: (css: string) => {
        text = css;
        sheet.replaceSync(css);
      },
    },
    remove: {
      value: () => {
        real.adoptedStyleSheets = real.adoptedStyleSheets.filter((s) => s !== sheet);
        Element.prototype.remove.call(e);
      },
    },
  });
  return e;
}
