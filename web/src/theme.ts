export const themes = ["system", "light", "dark"] as const;
export type Theme = (typeof themes)[number];

const key = "ossicle.theme";

export function storedTheme(): Theme {
  try {
    return themes.find((t) => t === localStorage.getItem(key)) ?? "system";
  } catch {
    return "system";
  }
}

export function applyTheme(t: Theme): void {
  if (t === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", t);
  try {
    if (t === "system") localStorage.removeItem(key);
    else localStorage.setItem(key, t);
  } catch {
    // It then lasts as long as the page.
  }
}
