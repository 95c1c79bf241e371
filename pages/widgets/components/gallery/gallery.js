// Thumbnails of the samples; a click reports the key as trigger `picked`.

function show({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".gallery");
  const keys = JSON.stringify(data.items);
  if (root.dataset.items !== keys) {
    root.dataset.items = keys;
    root.replaceChildren(
      ...data.items.map((item) => {
        const button = document.createElement("button");
        const image = document.createElement("img");
        const name = document.createElement("span");
        image.src = item.url;
        image.alt = "";
        name.textContent = item.name;
        button.dataset.key = item.key;
        button.title = item.title;
        button.setAttribute("role", "option");
        button.append(image, name);
        return button;
      }),
    );
  }
  root.onclick = (event) => {
    const button = event.target.closest("button");
    if (button) setTriggerValue("picked", button.dataset.key);
  };
  const buttons = [...root.children];
  rove(root, buttons, buttons.find((button) => button.dataset.key === data.selected), 3);
  const moved = root.dataset.selected !== data.selected;
  root.dataset.selected = data.selected ?? "";
  for (const button of buttons) {
    const chosen = button.dataset.key === data.selected;
    button.setAttribute("aria-selected", String(chosen));
    if (chosen && moved) {
      const top = button.offsetTop - root.offsetTop;
      if (top < root.scrollTop || top + button.offsetHeight > root.scrollTop + root.clientHeight) root.scrollTop = top - 4;
    }
  }
}
