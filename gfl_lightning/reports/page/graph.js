"use strict";
for (const box of document.querySelectorAll(".graph")) {
  const svg = box.querySelector("svg"), tip = box.querySelector(".tip");
  const data = JSON.parse(box.querySelector("script").textContent);
  const circles = [...svg.querySelectorAll("circle")], lines = [...svg.querySelectorAll("line")];
  const view = svg.viewBox.baseVal;

  const show = (client, event) => {
    const near = new Set();
    data.edges.forEach(([a, b], i) => {
      const mine = a === client || b === client;
      lines[i].classList.toggle("near", mine);
      if (mine) near.add(a === client ? b : a);
    });
    circles.forEach((circle, k) => circle.classList.toggle("near", near.has(k)));
    const names = [...near].map((k) => data.rows[k][0]);
    const facts = data.columns.map((name, i) => [name.replaceAll("_", " "), data.rows[client][i]]);
    const listed = names.slice(0, 8).join(", ") + (names.length > 8 ? ", …" : "");
    facts.push(["neighbours", names.length ? `${names.length}: ${listed}` : "none"]);
    tip.replaceChildren(...facts.filter(([, value]) => value !== "").map(([name, value]) => {
      const row = document.createElement("div");
      row.textContent = `${name}: ${value}`;
      return row;
    }));
    tip.hidden = false;
    const frame = box.getBoundingClientRect();
    tip.style.left = `${event.clientX - frame.left + 14}px`;
    tip.style.top = `${event.clientY - frame.top + 14}px`;
  };
  const hide = () => {
    tip.hidden = true;
    for (const one of [...circles, ...lines]) one.classList.remove("near");
  };
  circles.forEach((circle, client) => {
    circle.addEventListener("pointerenter", (event) => show(client, event));
    circle.addEventListener("pointerleave", hide);
  });

  const scale = () => view.width / svg.getBoundingClientRect().width;
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const frame = svg.getBoundingClientRect(), factor = event.deltaY > 0 ? 1.15 : 1 / 1.15;
    const x = view.x + (event.clientX - frame.left) * scale(), y = view.y + (event.clientY - frame.top) * scale();
    view.x = x - (x - view.x) * factor;
    view.y = y - (y - view.y) * factor;
    view.width *= factor;
    view.height *= factor;
  }, { passive: false });
  let from = null;
  svg.addEventListener("pointerdown", (event) => { from = event; });
  window.addEventListener("pointerup", () => { from = null; });
  svg.addEventListener("pointermove", (event) => {
    if (!from) return;
    view.x -= (event.clientX - from.clientX) * scale();
    view.y -= (event.clientY - from.clientY) * scale();
    from = event;
  });
}
