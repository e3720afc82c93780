// What is wrong with the layout of the page as it is in the window now: a list of sentences. Or with its colours alone,
// where only these have changed since.
(onlyColours = false) => {
  const found = [];
  const say = (what, element, more = "") => {
    const name = `${element.tagName.toLowerCase()}.${[...element.classList].join(".")}`;
    found.push(`${what}: <${name}> in <${element.closest("[class]")?.parentElement?.className ?? ""}> ${JSON.stringify(element.textContent.slice(0, 60))} ${more}`);
  };
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  const colours = new Map(); // the parts of a colour, by its text

  /** A colour as [red, green, blue, alpha], each up to 1. */
  function parsed(colour) {
    if (!colours.has(colour)) colours.set(colour, drawn(colour));
    return colours.get(colour);
  }

  function drawn(colour) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((value) => value / 255);
  }

  const over = (top, below) => [0, 1, 2].map((index) => top[index] * top[3] + below[index] * (1 - top[3]));

  const backgrounds = new Map(); // by element

  function background(element) {
    if (!element) return [1, 1, 1];
    if (!backgrounds.has(element)) {
      const layer = parsed(getComputedStyle(element).backgroundColor);
      backgrounds.set(element, layer[3] === 1 ? layer.slice(0, 3) : over(layer, background(element.parentElement)));
    }
    return backgrounds.get(element);
  }

  function luminance(colour) {
    const [red, green, blue] = colour.map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }

  function contrast(element) {
    const below = background(element);
    const [a, b] = [over(parsed(getComputedStyle(element).color), below), below].map(luminance);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }

  const faded = new Map(); // by element

  function isFaded(element) {
    if (!element) return false;
    if (!faded.has(element)) faded.set(element, Number(getComputedStyle(element).opacity) < 1 || isFaded(element.parentElement));
    return faded.get(element);
  }

  if (document.documentElement.scrollWidth > innerWidth) say("wider than the window", document.documentElement);

  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (element.closest("svg, option, noscript, dialog:not([open])")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter((box) => box.width > 1 && box.height > 1);
    if (boxes.length) texts.push({ element, boxes });
  }

  contrasts();
  if (onlyColours) return [...new Set(found)].slice(0, 20);

  // Text that is cut can be read: it has a title, can be scrolled or unfolded
  const checked = new Set();
  for (const { element } of texts) {
    for (let node = element; node && node !== document.body && !checked.has(node); node = node.parentElement) {
      checked.add(node);
      const style = getComputedStyle(node);
      const clips = [style.overflowX, style.overflowY].some((value) => ["hidden", "clip"].includes(value));
      if (!clips || style.overflowX === "auto" || style.overflowY === "auto") continue;
      const isCut = node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 3;
      if (isCut && !node.closest("[title]") && !node.querySelector("[title]") && !node.closest("summary"))
        say("cut without a way to read it", node);
    }
  }

  // Text that nothing covers, and that lies over no other text
  const seen = [];
  for (const { element, boxes } of texts) {
    for (const box of boxes) {
      const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
      if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) continue;
      const top = document.elementFromPoint(x, y);
      if (!top) continue;
      const related = top === element || top.contains(element) || element.contains(top);
      const clipped = clippedBy(element, x, y);
      const sticky = top.closest("#top, .episode-title, .names, .side .tools, th") != null;
      if (!related && !clipped && !sticky) say("covered", element, `by <${top.tagName.toLowerCase()}.${top.className}>`);
      if (related && !clipped) seen.push({ element, box });
    }
  }
  function clippedBy(element, x, y) {
    for (let node = element; node && node !== document.body; node = node.parentElement) {
      if (getComputedStyle(node).overflow === "visible") continue;
      const box = node.getBoundingClientRect();
      if (x < box.left || x > box.right || y < box.top || y > box.bottom) return true;
    }
    return false;
  }
  seen.sort((a, b) => a.box.top - b.box.top);
  for (let first = 0; first < seen.length; first++)
    for (let second = first + 1; second < seen.length && seen[second].box.top < seen[first].box.bottom; second++) {
      const [a, b] = [seen[first].box, seen[second].box];
      const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (width > 3 && height > Math.min(a.height, b.height) / 2 && seen[first].element !== seen[second].element)
        say("over another text", seen[first].element, `and ${JSON.stringify(seen[second].element.textContent.slice(0, 40))}`);
    }

  function contrasts() {
    for (const { element } of texts) {
      const style = getComputedStyle(element);
      const size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 600);
      const ratio = contrast(element);
      if (ratio < (large ? 3 : 4.5) && !isFaded(element)) say("too little contrast", element, ratio.toFixed(2));
    }
  }

  // Names stay horizontal: a short one takes one line, or two
  for (const name of document.querySelectorAll(".agent, .name")) {
    if (!name.checkVisibility() || name.textContent.length > 16) continue;
    const height = name.getBoundingClientRect().height;
    if (height > 2.5 * parseFloat(getComputedStyle(name).fontSize) * 1.5) say("a name in many lines", name, `${height} px`);
  }
  return [...new Set(found)].slice(0, 20);
}
