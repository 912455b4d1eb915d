// Browsers start no worker from a file. When the site is read from files, the worker of the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.started = new Promise((started) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
          const script = inside.document.createElement("script");
          script.src = url;
          script.addEventListener("load", () => started(inside));
          inside.document.head.append(script);
        }, {once: true});
      });
      document.body.append(frame);
    }

    async postMessage(data) {
      (await this.started).dispatchEvent(new MessageEvent("message", {data}));
    }
  };
}
