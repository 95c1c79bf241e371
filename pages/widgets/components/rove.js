// One stop of Tab for all; arrows lead from one to the next, Enter picks.
function rove(root, buttons, chosen, across) {
  const stop = buttons.includes(root.getRootNode().activeElement) ? root.getRootNode().activeElement : (chosen ?? buttons[0]);
  for (const button of buttons) button.tabIndex = button === stop ? 0 : -1;
  root.onkeydown = (event) => {
    const at = buttons.indexOf(event.target);
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -at, End: buttons.length - 1 - at }[event.key];
    const next = buttons[at + (by ?? NaN)];
    if (at < 0 || by === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // no page is turned
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
}
