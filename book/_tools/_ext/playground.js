// The playground of chapter 2: forty points, who picks whom, and where the loss pushes. Points, labels and the numbers to
// compare with come from the chapter, as JSON in the page.
"use strict";

(() => {
  // ---------------------------------------------------------------- the loss, as snnl_lib.losses computes it

  function logSumExp(values) {
    const most = Math.max(...values); // -Infinity for no values, whose sum is 0
    return most === -Infinity ? most : most + Math.log(values.reduce((sum, value) => sum + Math.exp(value - most), 0));
  }

  // Written so that no exponential overflows; both take -Infinity.
  const softplus = (z) => Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z)));
  const sigmoid = (z) => (z < 0 ? Math.exp(z) / (1 + Math.exp(z)) : 1 / (1 + Math.exp(-z)));
  const dot = (x, y) => x.reduce((sum, value, n) => sum + value * y[n], 0);

  // A row of zeros stays as it is: its cosine distance to everything is 1.
  const lengthOf = (x) => Math.hypot(...x) || 1;
  const toUnit = (x) => x.map((value) => value / lengthOf(x));

  // -distance / T up to a constant, which a softmax does not see.
  function logitsOf(points, temperature, distance) {
    const rows = distance === "cosine" ? points.map(toUnit) : points;
    const near = distance === "cosine" ? dot : (x, y) => -x.reduce((sum, value, n) => sum + (value - y[n]) ** 2, 0);
    return rows.map((x) => rows.map((y) => near(x, y) / temperature));
  }

  // For each anchor the logarithms of the sums over its classmates and over the others, itself left out.
  function anchorsOf(points, labels, temperature, distance) {
    return logitsOf(points, temperature, distance).map((logits, i) => {
      const over = (mates) => logSumExp(logits.filter((_, j) => j !== i && (labels[j] === labels[i]) === mates));
      const [own, other] = [over(true), over(false)];
      return { logits, own, other, counts: own !== -Infinity };
    });
  }

  function loss(points, labels, temperature, distance) {
    const counted = anchorsOf(points, labels, temperature, distance).filter((anchor) => anchor.counts);
    return counted.reduce((sum, { own, other }) => sum + softplus(other - own), 0) / Math.max(1, counted.length);
  }

  // For each anchor the probabilities `to` of picking each point, and `mate` of picking any classmate.
  function pick(points, labels, temperature, distance) {
    return anchorsOf(points, labels, temperature, distance).map(({ logits, own, other }, i) => {
      const all = logSumExp([own, other]);
      return { to: logits.map((logit, j) => (j === i ? 0 : Math.exp(logit - all))), mate: Math.exp(own - all) };
    });
  }

  function gradient(points, labels, temperature, distance) {
    const cosine = distance === "cosine";
    const rows = cosine ? points.map(toUnit) : points;
    const anchors = anchorsOf(points, labels, temperature, distance);
    const counted = Math.max(1, anchors.filter((anchor) => anchor.counts).length);
    const found = points.map((x) => x.map(() => 0));
    anchors.forEach(({ logits, own, other, counts }, i) => {
      const slope = counts ? sigmoid(other - own) / counted : 0;
      logits.forEach((logit, j) => {
        if (j === i || slope === 0) return;
        const byLogit = slope * (labels[j] === labels[i] ? -Math.exp(logit - own) : Math.exp(logit - other));
        rows[i].forEach((value, n) => {
          const difference = value - rows[j][n];
          found[i][n] += (byLogit / temperature) * (cosine ? rows[j][n] : -2 * difference);
          found[j][n] += (byLogit / temperature) * (cosine ? value : 2 * difference);
        });
      });
    });
    if (!cosine) return found;
    return found.map((slopes, i) => {
      const along = dot(slopes, rows[i]); // changes the point's length alone, which the cosine does not see
      return slopes.map((slope, n) => (slope - along * rows[i][n]) / lengthOf(points[i]));
    });
  }

  const annealed = (epoch) => 1 / (1 + epoch) ** 0.55; // Eq. 6 with the paper's eta and gamma

  // ---------------------------------------------------------------- the page

  const root = document.querySelector("[data-snnl-playground]");
  if (!root) return;
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);

  // The largest difference between these functions and the library: of a loss relative to it, of a gradient relative to its largest entry.
  function selfCheck() {
    const relative = (ours, theirs) => {
      const scale = Math.max(...theirs.map(Math.abs));
      return Math.max(...ours.map((value, n) => Math.abs(value - theirs[n]))) / (scale || 1);
    };
    const differences = data.expected.map((told) => {
      const given = [data.points[told.points], data.labels[told.labels], told.temperature, told.distance];
      return Math.max(relative([loss(...given)], [told.loss]), relative(gradient(...given).flat(), told.gradient.flat()));
    });
    return Math.max(...differences); // NaN if one is
  }

  window.snnlPlayground = { loss, gradient, pick, selfCheck };

  const SIDE = 480; // of the drawing, in its own units
  const MARGIN = 32;
  const EPOCHS = 30;
  const LONGEST = 60; // arrow
  // Arrows are minus the gradient times b and T, which takes out the mean's 1 / b and the logits' 1 / T, and this, with which they fit the drawing.
  const GAIN = { cosine: 0.5, sqeuclidean: 0.2 };
  const CLASSES = "ABCD";
  const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7"];
  const SHAPES = [
    "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0", // circle
    "M-5.5 -5.5H5.5V5.5H-5.5Z",
    "M0 -7.5L7.5 0L0 7.5L-7.5 0Z",
    "M0 -7.5L7 5.5H-7Z",
  ];
  const sign = (body) => `<svg viewBox="-15 -8 30 16" aria-hidden="true">${body}</svg>`;

  const page = document.createElement("div");
  page.className = "snnl-playground";
  page.setAttribute("role", "group");
  page.setAttribute("aria-label", "Playground of the soft nearest neighbor loss");
  page.innerHTML = `
    <div class="drawing">
      <svg viewBox="0 0 ${SIDE} ${SIDE}" role="application" aria-label="Forty points in the plane" aria-describedby="snnl-help"></svg>
    </div>
    <div class="controls">
      <div><div aria-hidden="true"><p>Loss of the batch</p><p class="loss"></p></div><p class="muted chance"></p><p class="muted steepest"></p></div>
      <p class="unseen" role="status" aria-live="polite"></p>
      <label class="range"><span><span>Temperature <i>T</i></span><span class="t" aria-hidden="true"></span></span>
        <input name="temperature" type="range" min="-2" max="1" step="0.01" value="0"></label>
      <label class="range"><span><span>Epoch <i>i</i> of Eq. 6</span><span class="epoch" aria-hidden="true"></span></span>
        <input name="epoch" type="range" min="0" max="${EPOCHS - 1}" step="1" value="0"></label>
      <div class="pair"><button type="button" name="play"></button>
        <label><input name="follow" type="checkbox"> with a step along the arrows</label></div>
      <fieldset><legend>Distance</legend>
        <label><input type="radio" name="distance" value="cosine" checked> cosine (Eq. 5)</label>
        <label><input type="radio" name="distance" value="sqeuclidean"> squared Euclidean</label></fieldset>
      <div class="pair">
        <label>Points <select name="points"></select></label>
        <label>Classes <select name="labels"><option value="four">four</option><option value="two">two</option></select></label>
        <label>Anchor <select name="anchor"></select></label></div>
      <div class="pair"><button type="button" name="step">Step along the arrows</button>
        <button type="button" name="again">Put the points back</button></div>
    </div>
    <div class="words">
      <ul class="classes" aria-label="Classes"></ul>
      <ul aria-label="Signs">
        <li>${sign('<path class="link mate" stroke-width="3" d="M-14 0H14"/>')}pick of a classmate</li>
        <li>${sign('<path class="link" stroke-width="3" d="M-14 0H14"/>')}pick of another (wider: likelier)</li>
        <li>${sign('<path class="arrow" d="M-14 0H14M8 -5L14 0L8 5"/>')}where the loss pushes</li>
      </ul>
      <p class="told"></p>
      <p class="muted" id="snnl-help">Drag a point, or move the focused one with the arrow keys (with Shift in larger steps);
        Page Up and Page Down go to the point before and after.</p>
    </div>`;

  const find = (selector) => page.querySelector(selector);
  const control = (name) => find(`[name="${name}"]`);
  const svg = find("svg");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");

  function draw(parent, name, attributes) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return parent.appendChild(element);
  }

  const [ground, links, arrows, marks] = ["ground", "links", "arrows", "marks"].map((name) => draw(svg, "g", { class: name }));
  const count = data.points.start.length;
  const each = Array.from({ length: count }, (_, i) => {
    const group = draw(marks, "g", { class: "point", role: "img", tabindex: "-1" });
    draw(group, "circle", { class: "hit", r: 13 });
    return { group, mark: draw(group, "path", { class: "mark" }), link: draw(links, "line", {}), arrow: draw(arrows, "path", { class: "arrow" }), i };
  });

  let points, labels, half; // half the side of the window, in the points' units
  let temperature = 1;
  let onSchedule = true; // is the temperature that of the epoch?
  let chosen = 0;
  let hovered = null;
  let dragged = null;
  let timer = null;
  let announcement = null;

  const distance = () => find('[name="distance"]:checked').value;
  const epoch = () => Number(control("epoch").value);
  const unit = () => (SIDE / 2 - MARGIN) / half;
  const toScreen = ([x, y]) => [SIDE / 2 + x * unit(), SIDE / 2 - y * unit()];
  const nameOf = (i) => `${i + 1} (class ${CLASSES[labels[i]]})`;
  const show = (value) => (value === 0 || value >= 0.001 ? value.toFixed(value < 0.1 ? 4 : 3) : value.toExponential(1));

  function drawGround() {
    ground.replaceChildren();
    const [low, high, middle] = [MARGIN, SIDE - MARGIN, SIDE / 2];
    draw(ground, "rect", { class: "frame", x: low, y: low, width: high - low, height: high - low });
    draw(ground, "path", { class: "axis", d: `M${low} ${middle}H${high}M${middle} ${low}V${high}` });
    const every = half > 3 ? 2 : 1;
    for (let tick = -every * Math.floor(half / every); tick <= half; tick += every) {
      const [x, y] = toScreen([tick, tick]);
      const name = String(tick).replace("-", "−");
      draw(ground, "text", { x, y: high + 14 }).textContent = name;
      draw(ground, "text", { x: low - 9, y: y + 5 }).textContent = name;
    }
    draw(ground, "text", { x: middle, y: SIDE - 2 }).textContent = "feature 1";
    draw(ground, "text", { transform: `translate(11 ${middle}) rotate(-90)` }).textContent = "feature 2";
  }

  function place(i, to) {
    points[i] = to.map((value) => Math.min(half, Math.max(-half, value)));
  }

  function fitWindow() {
    half = Math.max(2.5, 1.08 * Math.max(...points.flat().map(Math.abs)));
    drawGround();
  }

  function putBack() {
    points = data.points[control("points").value].map((point) => [...point]);
    fitWindow();
    update();
  }

  function setLabels() {
    labels = data.labels[control("labels").value];
    for (const { mark, i } of each) {
      mark.setAttribute("d", SHAPES[labels[i]]);
      mark.setAttribute("fill", COLOURS[labels[i]]);
    }
    const kinds = [...new Set(labels)].sort();
    const entry = (kind) => `<li>${sign(`<path class="mark" d="${SHAPES[kind]}" fill="${COLOURS[kind]}"/>`)}class ${CLASSES[kind]}</li>`;
    find(".classes").innerHTML = kinds.map(entry).join("");
    const option = (i) => `<option value="${i}">${nameOf(i)}</option>`;
    control("anchor").innerHTML = each.map(({ i }) => option(i)).join("");
  }

  function pushesOf(slopes) {
    return slopes.map((slope) => {
      const push = slope.map((value) => -GAIN[distance()] * count * temperature * value);
      const share = Math.min(1, LONGEST / unit() / Math.hypot(...push));
      return push.map((value) => share * value);
    });
  }

  function arrowPath([x, y], [dx, dy]) {
    const length = Math.hypot(dx, dy);
    if (!(length > 1.5)) return "";
    const [ux, uy] = [dx / length, dy / length];
    const at = (along, aside) => `${(x + along * ux - aside * uy).toFixed(1)} ${(y + along * uy + aside * ux).toFixed(1)}`;
    const [edge, head] = [8, Math.min(6, 0.6 * length)]; // from the mark's edge on, so that short ones are seen too
    const tip = edge + length;
    return `M${at(edge, 0)}L${at(tip, 0)}M${at(tip - head, -0.6 * head)}L${at(tip, 0)}L${at(tip - head, 0.6 * head)}`;
  }

  function update() {
    const given = [points, labels, temperature, distance()];
    const [value, picks, slopes] = [loss(...given), pick(...given), gradient(...given)];
    const steepest = Math.max(...slopes.map((slope) => Math.hypot(...slope)));
    const pushes = pushesOf(slopes);
    const anchor = dragged ?? hovered ?? chosen;
    const [x1, y1] = toScreen(points[anchor]);
    for (const { group, link, arrow, i } of each) {
      const p = picks[anchor].to[i];
      const [x2, y2] = toScreen(points[i]);
      group.setAttribute("transform", `translate(${x2.toFixed(1)} ${y2.toFixed(1)})`);
      group.setAttribute("class", i === anchor ? "point chosen" : "point");
      group.setAttribute("tabindex", i === chosen ? "0" : "-1");
      group.setAttribute("aria-label", describe(i, picks[i]));
      link.setAttribute("class", labels[i] === labels[anchor] ? "link mate" : "link");
      const look = { x1, y1, x2, y2, "stroke-width": 0.8 + 8 * p, "stroke-opacity": Math.min(1, 0.25 + Math.sqrt(p)) };
      for (const [key, number] of Object.entries(look)) link.setAttribute(key, number.toFixed(2));
      link.style.display = p < 0.002 ? "none" : "";
      arrow.setAttribute("d", arrowPath([x2, y2], [pushes[i][0] * unit(), -pushes[i][1] * unit()]));
    }
    const mates = labels.filter((label) => label === labels[0]).length - 1;
    find(".loss").textContent = show(value);
    find(".chance").textContent = `by chance (T → ∞): ${show(Math.log((count - 1) / mates))}`;
    find(".steepest").textContent = `largest gradient of a point: ${show(steepest)}`;
    find(".told").textContent = `Point ${describe(anchor, picks[anchor])}.`;
    find(".t").textContent = show(temperature);
    find(".epoch").textContent = onSchedule ? epoch() : "T set by hand";
    control("temperature").value = Math.log10(temperature);
    control("temperature").setAttribute("aria-valuetext", `T = ${show(temperature)}`);
    control("epoch").setAttribute("aria-valuetext", `epoch ${epoch()}, T = ${show(annealed(epoch()))}`);
    control("anchor").value = chosen;
    clearTimeout(announcement); // said once it has settled
    announcement = setTimeout(() => {
      find("[aria-live]").textContent = `Loss ${show(value)} at T = ${show(temperature)}, ${given[3] === "cosine" ? "cosine" : "squared Euclidean"} distance.`;
    }, 500);
  }

  function describe(i, { to, mate }) {
    const first = to.indexOf(Math.max(...to));
    const where = points[i].map((value) => value.toFixed(2).replace("-", "−")).join(", ");
    return `${nameOf(i)} at ${where} picks a classmate with probability ${show(mate)}; its likeliest pick is ${nameOf(first)} with ${show(to[first])}`;
  }

  // Along the arrows, all points alike: as many times their length as brings the loss down the most.
  function step() {
    const pushes = pushesOf(gradient(points, labels, temperature, distance()));
    let least = loss(points, labels, temperature, distance());
    let best = points;
    for (let times = 8; times > 1e-3; times /= 2) {
      const moved = points.map((point, i) => point.map((value, n) => value + times * pushes[i][n]));
      const value = loss(moved, labels, temperature, distance());
      if (value < least) [least, best] = [value, moved];
    }
    points = best;
    if (Math.max(...points.flat().map(Math.abs)) > half) fitWindow();
  }

  // ---------------------------------------------------------------- what the reader does

  function setEpoch(number) {
    control("epoch").value = number;
    temperature = annealed(number);
    onSchedule = true;
  }

  function nextEpoch() {
    setEpoch((epoch() + 1) % EPOCHS);
    if (control("follow").checked) step();
    update();
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    control("play").textContent = still.matches ? "Next epoch" : "Play the epochs";
  }

  function play() {
    if (still.matches) return nextEpoch(); // no movement that goes on by itself
    if (timer) return pause();
    control("play").textContent = "Pause";
    setEpoch(epoch() === EPOCHS - 1 ? 0 : epoch());
    update();
    timer = setInterval(() => {
      nextEpoch();
      if (epoch() === EPOCHS - 1) pause();
    }, 400);
  }

  function choose(i, focus) {
    chosen = i;
    hovered = null;
    update();
    if (focus) each[i].group.focus({ preventScroll: true });
  }

  control("temperature").addEventListener("input", (event) => {
    pause();
    temperature = 10 ** Number(event.target.value);
    onSchedule = false;
    update();
  });
  control("epoch").addEventListener("input", (event) => {
    pause();
    setEpoch(epoch());
    update();
  });
  control("play").addEventListener("click", play);
  still.addEventListener("change", pause);
  control("step").addEventListener("click", () => {
    step();
    update();
  });
  control("again").addEventListener("click", putBack);
  control("points").addEventListener("change", putBack);
  control("labels").addEventListener("change", () => {
    setLabels();
    update();
  });
  control("anchor").addEventListener("change", (event) => choose(Number(event.target.value)));
  for (const input of page.querySelectorAll('[name="distance"]')) input.addEventListener("change", update);

  for (const { group, i } of each) {
    group.addEventListener("focus", () => chosen !== i && choose(i));
    group.addEventListener("pointerenter", (event) => {
      if (event.pointerType !== "mouse" || dragged !== null) return;
      hovered = i;
      update();
    });
    group.addEventListener("pointerleave", () => {
      if (hovered === null || dragged !== null) return;
      hovered = null;
      update();
    });
    group.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault(); // no selection of text
      group.setPointerCapture(event.pointerId);
      dragged = i;
      choose(i, true);
    });
    group.addEventListener("pointermove", (event) => {
      if (dragged !== i) return;
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      place(i, [(x - SIDE / 2) / unit(), (SIDE / 2 - y) / unit()]);
      update();
    });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
      group.addEventListener(end, () => {
        if (dragged !== i) return;
        dragged = null;
        update();
      });
    }
    group.addEventListener("keydown", (event) => {
      const size = half * (event.shiftKey ? 0.1 : 0.02);
      const moves = { ArrowLeft: [-size, 0], ArrowRight: [size, 0], ArrowUp: [0, size], ArrowDown: [0, -size] };
      const others = { PageUp: i - 1, PageDown: i + 1, Home: 0, End: count - 1 };
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key in moves) {
        place(i, points[i].map((value, n) => value + moves[event.key][n]));
        update();
      } else if (event.key in others) choose((others[event.key] + count) % count, true);
      else return;
      event.preventDefault(); // the page does not scroll
    });
  }

  for (const [name, title] of Object.entries(data.shown)) control("points").add(new Option(title, name));
  pause();
  setLabels();
  putBack();
  root.replaceChildren(page); // the still picture has done its duty
})();
