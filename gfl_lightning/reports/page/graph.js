"use strict";
for (const box of document.querySelectorAll(".graph")) {
  const svg = box.querySelector("svg"), tip = box.querySelector(".tip");
  const data = JSON.parse(box.querySelector("script").textContent);
  const circles = [...svg.querySelectorAll("circle")], lines = [...svg.querySelectorAll("line")];
  const view = svg.viewBox.baseVal, whole = view.width;
  const around = circles.map(() => []);
  data.edges.forEach(([a, b], line) => { around[a].push([b, line]); around[b].push([a, line]); });

  const hide = () => {
    tip.hidden = true;
    for (const one of box.querySelectorAll(".near")) one.classList.remove("near");
  };
  const show = (client) => {
    hide();
    for (const [other, line] of around[client]) {
      circles[other].classList.add("near");
      lines[line].classList.add("near");
    }
    const names = around[client].map(([other]) => data.rows[other][0]), degree = data.degree[client];
    const listed = names.slice(0, 8).join(", ") + (degree > Math.min(8, names.length) ? ", …" : "");
    const facts = data.columns.map((name, i) => [name, data.rows[client][i]]);
    facts.push(["neighbours", degree ? `${degree}: ${listed}` : "none"]);
    tip.replaceChildren(...facts.filter(([, value]) => value !== "").map(([name, value]) => {
      const row = document.createElement("div");
      row.textContent = `${name}: ${value}`;
      return row;
    }));
    tip.hidden = false;
    const frame = box.getBoundingClientRect(), at = circles[client].getBoundingClientRect();
    const left = Math.min(at.right - frame.left + 8, frame.width - tip.offsetWidth);
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${Math.max(0, at.bottom - frame.top + 8)}px`;
  };
  circles.forEach((circle, client) => {
    circle.addEventListener("pointerenter", () => show(client));
    circle.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  });

  const scale = () => view.width / svg.getBoundingClientRect().width;
  const zoom = (factor, x, y) => {
    hide();
    view.x = x - (x - view.x) * factor;
    view.y = y - (y - view.y) * factor;
    view.width *= factor;
    view.height *= factor;
  };
  const all = () => { hide(); view.x = view.y = 0; view.width = view.height = whole; };
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const frame = svg.getBoundingClientRect();
    const x = view.x + (event.clientX - frame.left) * scale(), y = view.y + (event.clientY - frame.top) * scale();
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, x, y);
  }, { passive: false });
  svg.addEventListener("dblclick", all);
  for (const button of box.querySelectorAll("button")) {
    const factor = Number(button.dataset.zoom);
    const step = () => zoom(factor, view.x + view.width / 2, view.y + view.height / 2);
    button.addEventListener("click", () => (factor ? step() : all()));
  }

  const field = box.querySelector("input");
  field.addEventListener("input", () => {
    const asked = field.value.trim().toLowerCase();
    const found = circles.map((_, client) => client).filter(
      (client) => asked && data.rows[client][0].toLowerCase().includes(asked));
    circles.forEach((circle) => circle.classList.remove("found"));
    for (const client of found) circles[client].classList.add("found");
    hide();
    const exact = found.find((client) => data.rows[client][0].toLowerCase() === asked);
    if (exact !== undefined || found.length === 1) show(exact ?? found[0]);
  });

  let from = null;
  svg.addEventListener("pointerdown", (event) => { from = event; });
  window.addEventListener("pointerup", () => { from = null; });
  svg.addEventListener("pointermove", (event) => {
    if (!from) return;
    hide();
    view.x -= (event.clientX - from.clientX) * scale();
    view.y -= (event.clientY - from.clientY) * scale();
    from = event;
  });
}
