// Small helpers to make elements. Texts are set as text, never as HTML.

/** Returns an element: h("p", {class: "soft"}, "text", child). */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  set(element, properties);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Returns an SVG element. */
export function s(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, properties);
  element.append(...children.flat());
  return element;
}

function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
}

/** Returns a token with a background as strong as `share`, from 0 to 1; negative ones are red. */
export function shaded(token, share, title, tag = "span", properties = {}) {
  const element = h(tag, { class: "token", title, ...properties }, visible(token));
  const colour = share < 0 ? "--bad" : "--mark";
  element.style.backgroundColor = `rgba(var(${colour}), ${Math.min(1, Math.abs(share)) * 0.6})`;
  return element;
}

/** Returns a token with its spaces and line ends made visible. */
export function visible(token) {
  return token.replaceAll("\n", "⏎").replaceAll("Ġ", "·").replaceAll("▁", "·") || "∅";
}

/** Returns rows of label, bar and percentage. */
export function bars(pairs) {
  const most = Math.max(...pairs.map(([, value]) => value), 1e-9);
  return h("div", { class: "bars" }, pairs.flatMap(([label, value]) => {
    const bar = h("div", { class: "bar" });
    bar.style.width = `${(100 * value) / most}%`;
    return [h("div", {}, label), h("div", { class: "bar-box" }, bar), h("div", {}, percent(value))];
  }));
}

export function range(count) {
  return [...Array(count).keys()];
}

/** Returns a menu of [value, text] pairs; `choose` gets the value as it was passed. */
export function menu(label, options, value, choose) {
  const element = h("select", { change: () => choose(options[element.selectedIndex][0]) },
    options.map(([, text]) => h("option", {}, text)));
  element.selectedIndex = options.findIndex(([each]) => each === value);
  return h("label", {}, `${label} `, element);
}

export function percent(value) {
  return `${(100 * value).toFixed(value < 0.0995 ? 2 : 1)} %`;
}

/** Returns the bytes of base64. */
export function bytes(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** Returns the 32-bit floats of base64. */
export function floats(base64) {
  return new Float32Array(bytes(base64).buffer);
}

/** Draws values from -1 to 1 (rows, columns) into a new canvas: blue above 0, red below. */
export function signed(values, rows, columns, label) {
  const canvas = h("canvas", { role: "img", "aria-label": label });
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i += 1) {
    const value = values(i);
    image.data.set([value < 0 ? 200 : 40, 90, value < 0 ? 60 : 200, Math.round(255 * Math.abs(value))], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Returns a function that draws a vector as a line of colours, the strongest for `largest`. */
export function strips(vectors) {
  const largest = vectors.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
  return (vector, label) => {
    // The square root lets small values be seen beside large ones.
    const colour = (value) => Math.sign(value) * Math.sqrt(Math.abs(value) / largest);
    const canvas = signed((i) => colour(vector[i]), 1, vector.length, label);
    canvas.classList.add("strip");
    return canvas;
  };
}

/** Draws values from 0 to 1 (rows, columns) into a new canvas, `scale` pixels each. */
export function heatmap(values, rows, columns, { scale = 1, label }) {
  const canvas = h("canvas", { role: "img", "aria-label": label });
  canvas.width = columns;
  canvas.height = rows;
  canvas.style.width = `${columns * scale}px`;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const [red, green, blue] = getComputedStyle(document.documentElement)
    .getPropertyValue("--mark").split(",").map(Number);
  for (let i = 0; i < rows * columns; i += 1) {
    image.data.set([red, green, blue, Math.round(255 * Math.sqrt(values(i)))], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
