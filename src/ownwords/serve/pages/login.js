import { translate } from "/language.js";

translate(document);
// The server never sees the part after "#": the form takes it along, and the redirect keeps it.
const form = document.getElementById("form");
form.action = `/login${location.search}${location.hash}`;
