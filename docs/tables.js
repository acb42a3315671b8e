// Sorts a table in an element of the class "sortable" by the column whose heading is clicked.
"use strict";
(() => {
  // "accuracy 0.886" sorts by its text, then by its number.
  const key = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = (text.match(/[\d.,]*\d/g) || []).pop();
    return [text.replace(/[\d.,]*\d/g, ""), number ? Number(number.replaceAll(",", "")) : -Infinity];
  };
  const compare = (one, other) => one[0].localeCompare(other[0]) || one[1] - other[1];

  for (const table of document.querySelectorAll(".sortable table")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].sort((one, other) => compare(key(one, column), key(other, column)));
        body.append(...(down ? rows.reverse() : rows));
      });
    });
  }
})();

// Tables that scroll sideways, as on a phone, take the focus: then the arrow keys scroll them.
function focusable() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
    box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  }
}
addEventListener("load", focusable);
addEventListener("resize", focusable);
