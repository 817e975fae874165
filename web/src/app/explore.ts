// Explore: what if the GPU were different? For any network with the time model, or for convolutions with the published DeLTA model.
import { el, select } from "../dom";
import { exploreDelta } from "./explore-delta";
import { exploreTime } from "./explore-time";
import type { Page } from "./main";

export const explore: Page = async (root, params) => {
  const inner = el("div");
  // Links of before name a network of the paper.
  const which = (): string => params.get("by", params.get("network") ? "delta" : "time");
  const show = async (): Promise<void> => {
    inner.replaceChildren();
    await (which() === "delta" ? exploreDelta : exploreTime)(inner, params);
  };
  root.append(el("div", { class: "controls" }, select("by", "Predicted by", [["time", "the time model, whole networks"], ["delta", "DeLTA as published, convolutions"]], which(), (v) => {
    params.set({ by: v, network: null });
    void show();
  })), inner);
  await show();
};
