// Returns the texts whose contrast with what is behind them is less than 4.5.
(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const paint = (colours) => {
    context.clearRect(0, 0, 1, 1);
    for (const each of colours) { context.fillStyle = each; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backs = (element) => {
    const found = [];
    for (let each = element; each; each = each.parentElement) found.unshift(getComputedStyle(each).backgroundColor);
    return found;
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const box = element.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || box.width < 2 || element.closest("svg, textarea, .paint + textarea")) continue;
    const behind = backs(element);
    const a = light(paint(behind)), b = light(paint([...behind, getComputedStyle(element).color]));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([walker.currentNode.data.trim().slice(0, 40), ratio.toFixed(2)]);
  }
  return low;
})()
