// The place one wanted to go to stands behind the "#", which a server never sees: the form takes it
// along, and a redirect without one of its own keeps it.
const form = document.getElementById("form");
form.action = `/login${location.hash}`;
