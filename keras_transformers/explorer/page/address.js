// What the page shows, kept in its address after "#", so that a copied address shows the same.

/** Returns what the address names: `model` and `view`, which may be missing, and `texts`. */
export function read() {
  const { model, view, ...texts } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return { model, view, texts };
}

/** Puts them into the address, without a new entry in the browser's history. */
export function write(model, view, texts) {
  history.replaceState(null, "", `#${new URLSearchParams({ model, view, ...texts })}`);
}
