// Tables that scroll sideways, as on a phone, take the focus: then the arrow keys scroll them.
function focusable() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
    box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  }
}
addEventListener("load", focusable);
addEventListener("resize", focusable);
