/* The search on pages that are opened from a disk, where browsers start no workers: a hidden frame stands in for one.
   The theme's plugin `offline` would load such a script from another host, unless it finds one with this name. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = (this.inside = frame.contentWindow)
      const load = url =>
        new Promise((loaded, failed) => {
          const script = inside.document.createElement("script")
          Object.assign(script, { src: url, onload: loaded, onerror: failed })
          inside.document.body.append(script)
        })
      inside.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => load(url)), Promise.resolve())
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = load(url)
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.inside.frameElement.remove()
    }
  }
}
