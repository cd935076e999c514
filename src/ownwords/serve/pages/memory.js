// What the browser remembers of the reader's choices.

const memory = new Map(); // where storage is forbidden, a choice holds until the page is closed

export function remember(name, value) {
  memory.set(name, value);
  try {
    localStorage.setItem(`ownwords.${name}`, value);
  } catch {
    // kept in `memory`
  }
}

export function remembered(name) {
  try {
    return localStorage.getItem(`ownwords.${name}`) ?? memory.get(name) ?? null;
  } catch {
    return memory.get(name) ?? null;
  }
}
