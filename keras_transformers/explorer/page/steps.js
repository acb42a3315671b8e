// Steps that are shown one after the other: back, play, next, and a slider.

import { h } from "./dom.js";
import { word } from "./words.js";

const PACE = 1200; // milliseconds a step

/**
 * Returns the controls of `count` steps and shows one, by default the first.
 *
 * They move on their own only after a click on Play, which is missing for readers who asked their
 * system for less motion.
 */
export function stepper(count, show, step = 0) {
  let timer = null;
  const back = h("button", { type: "button", click: () => go(step - 1) }, word("back"));
  const next = h("button", { type: "button", click: () => go(step + 1) }, word("forward"));
  const slider = h("input", {
    type: "range", min: 1, max: count, "aria-label": word("step"), input: () => go(slider.value - 1),
  });
  const place = h("span", { class: "soft" });
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const play = calm || count < 2 ? null : h("button", { type: "button", click: () => (timer ? stop() : start()) }, word("play"));

  function go(to) {
    stop();
    move(to);
  }

  function move(to) {
    step = Math.max(0, Math.min(count - 1, to));
    back.disabled = step === 0;
    next.disabled = step === count - 1;
    slider.value = step + 1;
    place.textContent = `${word("step")} ${step + 1} / ${count}`;
    show(step);
  }

  function start() {
    play.textContent = word("pause");
    if (step === count - 1) move(0);
    timer = setInterval(() => {
      if (play.isConnected && step < count - 1) move(step + 1);
      if (!play.isConnected || step === count - 1) stop();
    }, PACE);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    if (play) play.textContent = word("play");
  }

  move(step);
  return h("div", { class: "row steps", role: "group", "aria-label": word("step") }, back, play, next, slider, place);
}
