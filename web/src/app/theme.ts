// Light or dark: as the system has it, or as the button says. The choice is kept.
import { el } from "../dom";

const KEY = "preflop-theme";

export function theme(): HTMLElement {
  const root = document.documentElement;
  const kept = localStorage.getItem(KEY);
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = (): boolean => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const button = el("button", { type: "button", id: "theme" });
  const name = (): void => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem(KEY, root.dataset.theme);
    name();
  });
  system.addEventListener("change", name);
  name();
  return button;
}
