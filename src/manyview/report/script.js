"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const tip = document.getElementById("tip");
  const make = (name, attributes = {}, ...children) => {
    const svg = ["circle", "path", "line"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children); // texts stay texts
    return node;
  };

  // Thumbnails
  const described = (sheet, row) => {
    const label = sheet.classes[sheet.labels[row]];
    return sheet.names[row] + (label === undefined ? "" : ", " + label);
  };
  const thumbnail = (number, row, kind = "") => {
    const sheet = page.sheets[number], words = described(sheet, row);
    const node = make("span", { class: `thumb sheet${number} ${kind}`, role: "img", "aria-label": words, title: words });
    node.style.setProperty("--x", row % sheet.columns);
    node.style.setProperty("--y", Math.floor(row / sheet.columns));
    return node;
  };
  const beside = (node, x, y) => {
    const box = node.getBoundingClientRect(), room = 14;
    const left = x + room + box.width > innerWidth ? x - room - box.width : x + room;
    node.style.left = Math.max(4, Math.min(left, innerWidth - box.width - 4)) + "px";
    node.style.top = Math.max(4, Math.min(y + room, innerHeight - box.height - 4)) + "px";
  };

  // Maps: a point shows its picture, and when chosen its neighbours, in every map of the same images
  const maps = [...document.querySelectorAll("svg.map")].map((svg) => {
    const number = Number(svg.dataset.map), marks = [...svg.querySelectorAll(".marks use")];
    const points = marks.map((mark) => [Number(mark.getAttribute("x")), Number(mark.getAttribute("y"))]);
    return { svg, marks, points, at: -1, ...page.maps[number], near: page.maps[number].near, box: document.querySelector(`[data-near="${number}"]`) };
  });
  const place = (map, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(map.svg.getScreenCTM().inverse());
  const closest = (map, x, y, reach) => {
    let best = -1, least = reach * reach;
    map.points.forEach(([a, b], row) => {
      const distance = (a - x) ** 2 + (b - y) ** 2;
      if (distance < least && !map.marks[row].classList.contains("away")) [best, least] = [row, distance];
    });
    return best;
  };
  const onScreen = (map, row) => new DOMPoint(...map.points[row]).matrixTransform(map.svg.getScreenCTM());
  const ring = (map, rows) => {
    map.svg.querySelector(".chosen").replaceChildren(
      ...rows.map((row, turn) => make("circle", { cx: map.points[row][0], cy: map.points[row][1], r: turn ? 6 : 9 })));
  };
  const show = (map, row) => {
    const sheet = page.sheets[map.sheet], label = sheet.classes[sheet.labels[row]];
    tip.replaceChildren(thumbnail(map.sheet, row), make("div", {}, sheet.names[row]), make("small", {}, label ?? ""));
    tip.hidden = false;
    const point = onScreen(map, row);
    beside(tip, point.x, point.y);
  };
  const point = (map, row) => {
    if (row < 0) { tip.hidden = true; return; }
    show(map, row);
  };
  const choose = (first, row) => maps.filter((map) => map.sheet === first.sheet).forEach((map) => {
    const near = map.near[row], [x, y] = map.points[row], sheet = page.sheets[map.sheet];
    map.at = row;
    map.svg.querySelector(".links").replaceChildren(
      ...near.map((other) => make("path", { d: `M${x} ${y}L${map.points[other][0]} ${map.points[other][1]}` })));
    ring(map, [row, ...near]);
    const label = sheet.classes[sheet.labels[row]];
    const strip = near.map((other, turn) => {
      const kind = label === undefined ? "" : sheet.labels[other] === sheet.labels[row] ? "same" : "differs";
      return make("span", { class: "weighed" }, thumbnail(map.sheet, other, kind), make("small", {}, map.similar[row][turn].toFixed(2)));
    });
    map.box.replaceChildren(
      thumbnail(map.sheet, row, "query"), make("h4", {}, sheet.names[row]), make("small", {}, label ?? ""),
      make("div", { class: "thumbs" }, ...strip), make("p", { class: "fine" }, "Its nearest neighbours, with their cosine similarity."));
  });
  const clear = () => maps.forEach((map) => {
    map.svg.querySelector(".links").replaceChildren();
    map.svg.querySelector(".chosen").replaceChildren();
    tip.hidden = true;
  });
  const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const step = (map, [dx, dy]) => {
    if (map.at < 0) return closest(map, 240, 240, 1e6);
    const [x, y] = map.points[map.at];
    let best = map.at, least = Infinity;
    map.points.forEach(([a, b], row) => {
      const ahead = (a - x) * dx + (b - y) * dy, aside = Math.abs((a - x) * dy) + Math.abs((b - y) * dx);
      if (row !== map.at && ahead > 0 && ahead + 2 * aside < least) [best, least] = [row, ahead + 2 * aside];
    });
    return best;
  };
  maps.forEach((map) => {
    map.svg.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      const { x, y } = place(map, event);
      point(map, closest(map, x, y, 14));
    });
    map.svg.addEventListener("pointerleave", () => { tip.hidden = true; });
    map.svg.addEventListener("click", (event) => {
      const { x, y } = place(map, event), row = closest(map, x, y, 26);
      if (row < 0) { clear(); return; }
      choose(map, row);
      point(map, row);
    });
    map.svg.addEventListener("keydown", (event) => {
      if (event.key in ways) {
        map.at = step(map, ways[event.key]);
        ring(map, [map.at]);
        point(map, map.at);
      } else if ((event.key === "Enter" || event.key === " ") && map.at >= 0) choose(map, map.at);
      else if (event.key === "Escape") clear();
      else return;
      event.preventDefault();
    });
    map.svg.addEventListener("blur", () => { tip.hidden = true; });
  });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // The legend: one class alone
  document.querySelectorAll(".legend button").forEach((button) => button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.parentNode.querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", String(on && other === button)));
    maps.filter((map) => String(map.sheet) === button.dataset.sheet).forEach((map) => map.marks.forEach((mark) =>
      mark.classList.toggle("away", on && mark.dataset.k !== button.dataset.class)));
  }));

  // Curves: values at the pointer, or at the arrow keys
  const scale = (text) => {
    const [low, high, start, end, log] = text.split(" ").map(Number);
    return (pixel) => {
      const share = (pixel - start) / (end - start);
      return log ? 10 ** (Math.log10(low) + share * (Math.log10(high) - Math.log10(low))) : low + share * (high - low);
    };
  };
  const spoken = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
  const read = make("div", { class: "read", "aria-live": "polite" });
  read.hidden = true;
  document.body.append(read);
  document.querySelectorAll("svg.chart[data-x]").forEach((svg) => {
    const x = scale(svg.dataset.x), y = scale(svg.dataset.y), percent = svg.dataset.percent === "1";
    const lines = [...svg.querySelectorAll("path.line[data-name]")].map((path) => ({
      name: path.dataset.name, kind: [...path.classList].find((each) => /^c\d$/.test(each)),
      points: (path.getAttribute("d").match(/-?[\d.]+(?:e-?\d+)? -?[\d.]+(?:e-?\d+)?/g) ?? []).map((pair) => pair.split(" ").map(Number)),
    })).filter((line) => line.points.length);
    if (!lines.length) return;
    const cross = make("path", { class: "cross", d: "" });
    svg.append(cross);
    let at = lines[0].points.length;
    const tell = (pixel) => {
      const found = lines.map((line) => [line, line.points.reduce((best, each) => Math.abs(each[0] - pixel) < Math.abs(best[0] - pixel) ? each : best)]);
      const here = found[0][1][0];
      const [, , bottom, top] = svg.dataset.y.split(" ").map(Number);
      cross.setAttribute("d", `M${here} ${top}V${bottom}`);
      const rows = found.map(([line, each]) => make("div", {}, make("b", { class: line.kind }, line.name), " " + (percent ? (100 * y(each[1])).toFixed(1) + "%" : spoken(y(each[1])))));
      read.replaceChildren(make("small", {}, `${svg.dataset.over} ${spoken(x(here))}`), ...rows);
      read.hidden = false;
      const point = new DOMPoint(here, (top + bottom) / 2).matrixTransform(svg.getScreenCTM());
      beside(read, point.x, point.y);
    };
    const hide = () => { cross.setAttribute("d", ""); read.hidden = true; };
    const under = (event) => tell(new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x);
    svg.addEventListener("pointermove", under);
    svg.addEventListener("pointerdown", under);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { hide(); return; }
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      at = Math.max(0, Math.min(lines[0].points.length - 1, at + (event.key === "ArrowRight" ? 1 : -1)));
      tell(lines[0].points[at][0]);
      event.preventDefault();
    });
  });

  // Tables that are wider than their place say so
  const wide = () => document.querySelectorAll(".scroll").forEach((each) => {
    each.toggleAttribute("data-wide", each.scrollWidth > each.clientWidth + 1);
  });
  addEventListener("resize", wide);
  document.addEventListener("toggle", wide, true);
  wide();

  // Copying, and printing with nothing folded away
  document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
    const code = button.parentNode.querySelector("code");
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch { button.textContent = "Selected"; }
  }));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
})();
