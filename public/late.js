// Says so when the interactive parts have not taken over within ten seconds; the page works without them.
setTimeout(() => {
  if (!document.documentElement.hasAttribute("data-interactive")) {
    document.getElementById("not-interactive")?.removeAttribute("hidden");
  }
}, 10000);
