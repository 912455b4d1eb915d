package main

import (
	"fmt"
	"html"
	"strings"
)

const (
	width    = 440
	textSize = 13
	line     = 17 // between two lines of text
)

// style has the colours for light and dark pages.
const style = `<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif; fill: #1b1f24; }
.name { font-weight: 600; }
.minor { fill: #57606a; }
.page { fill: #ffffff; stroke: #d0d7de; }
.box { fill: #f3f5f7; stroke: #8c959f; }
.life, .tick { stroke: #8c959f; }
.dashed { stroke-dasharray: 3 4; }
.hold { fill: #1a7f5a; }
.grace { fill: #d4880f; }
.next { fill: #2f6fd0; }
.ask, .answer { stroke: #1b1f24; fill: none; stroke-width: 1.4; }
.answer { stroke-dasharray: 5 4; }
.head { fill: #1b1f24; }
.hint { stroke: #b3560b; fill: none; stroke-width: 2; }
.hinthead, .hinttext { fill: #b3560b; }
.crash { stroke: #cf222e; stroke-width: 2.4; fill: none; }
.crashtext { fill: #cf222e; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ee; }
.minor { fill: #a3adb8; }
.page { fill: #1d222a; stroke: #444c56; }
.box { fill: #2a313b; stroke: #768390; }
.life, .tick { stroke: #768390; }
.hold { fill: #3fb98a; }
.grace { fill: #e3a634; }
.next { fill: #6ea8fe; }
.ask, .answer { stroke: #e6e9ee; }
.head { fill: #e6e9ee; }
.hint { stroke: #f0984f; }
.hinthead, .hinttext { fill: #f0984f; }
.crash { stroke: #ff7b72; }
.crashtext { fill: #ff7b72; }
}
</style>
`

// canvas collects the shapes of a picture.
type canvas struct{ strings.Builder }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// text writes a line of text; anchor is start, middle or end.
func (c *canvas) text(x, y int, class, anchor, s string) {
	c.add(`<text x="%d" y="%d" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(s))
}

// svg returns the picture.
func (c *canvas) svg(title string, height int) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>%s</title>
%s<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>
%s</svg>
`, width, height, width, height, html.EscapeString(title), style, width-1, height-1, c.String())
}

// sequence is a picture of messages between two processes and the backend. Time goes down.
type sequence struct {
	title  string
	actors [3]string
	steps  []step
}

// step draws one event at height y and returns the height of the next one.
type step func(p *progress, y int) int

// progress is the state of a drawing: since when each process has held the lock, or 0.
type progress struct {
	canvas
	bars canvas // below the rest
	held [3]int
}

// xs are the lifelines' places.
var xs = [3]int{60, 220, 380}

func (s sequence) draw() string {
	var p progress
	y := 62
	for _, st := range s.steps {
		y = st(&p, y)
	}
	for who := range p.held {
		p.stop(who, y+10)
	}
	bottom := y + 14
	var c canvas
	for i, x := range xs {
		c.add(`<path class="life" d="M%d 40V%d"/>`, x, bottom)
		c.add(`<rect class="box" x="%d" y="14" width="92" height="27" rx="4"/>`, x-46)
		c.text(x, 32, "name", "middle", s.actors[i])
	}
	c.WriteString(p.bars.String())
	c.WriteString(p.String())
	y = bottom + 22
	c.add(`<rect class="hold" x="16" y="%d" width="10" height="12" rx="2"/>`, y-10)
	c.text(34, y, "minor", "start", "the holder's context is live, the work runs")
	return c.svg(s.title, y+14)
}

// stop ends the bar of a process that holds the lock.
func (p *progress) stop(who, y int) {
	if p.held[who] > 0 {
		p.bars.add(`<rect class="hold" x="%d" y="%d" width="10" height="%d" rx="2"/>`, xs[who]-5, p.held[who], y-p.held[who])
	}
	p.held[who] = 0
}

// arrow draws a message with its label above.
func (p *progress) arrow(from, to, y int, class, head, label string, lines []string) int {
	for _, l := range lines {
		p.text((xs[from]+xs[to])/2, y, label, "middle", l)
		y += line
	}
	y -= 10
	x1, x2, back := xs[from]+7, xs[to]-7, -7
	if from > to {
		x1, x2, back = xs[from]-7, xs[to]+7, 7
	}
	p.add(`<path class="%s" d="M%d %dH%d"/>`, class, x1, y, x2+back/2)
	p.add(`<path class="%s" d="M%d %dl%d -4v8z"/>`, head, x2, y, back)
	return y + 24
}

func ask(who int, lines ...string) step {
	return func(p *progress, y int) int { return p.arrow(who, backend, y, "ask", "head", "", lines) }
}

func answer(who int, lines ...string) step {
	return func(p *progress, y int) int { return p.arrow(backend, who, y, "answer", "head", "minor", lines) }
}

// hint is a message that the backend sends by itself.
func hint(who int, lines ...string) step {
	return func(p *progress, y int) int { return p.arrow(backend, who, y, "hint", "hinthead", "hinttext", lines) }
}

func begin(who int) step {
	return func(p *progress, y int) int { p.held[who] = y - 16; return y }
}

func end(who int, note string) step {
	return func(p *progress, y int) int {
		p.text(xs[who]+12, y, "minor", "start", note)
		p.stop(who, y)
		return y + 22
	}
}

func wait(who int, note string) step {
	return func(p *progress, y int) int {
		p.note(who, y-6, "minor", note)
		return y
	}
}

func crash(who int, note string) step {
	return func(p *progress, y int) int {
		y += 14
		p.stop(who, y)
		p.add(`<path class="crash" d="M%d %dl12 12m0 -12l-12 12"/>`, xs[who]-6, y-6)
		p.note(who, y+5, "crashtext", note)
		return y + 30
	}
}

// note writes beside a lifeline, towards the nearer edge where there is room, else inside.
func (p *progress) note(who, y int, class, s string) {
	if who == b {
		p.text(xs[who]-12, y, class, "end", s)
		return
	}
	p.text(xs[who]+12, y, class, "start", s)
}

func gap(note string) step {
	return func(p *progress, y int) int {
		p.add(`<path class="tick dashed" d="M16 %dH%d"/>`, y-6, width-16)
		p.text(width/2, y+12, "minor", "middle", note)
		p.add(`<path class="tick dashed" d="M16 %dH%d"/>`, y+20, width-16)
		return y + 46
	}
}

// lease draws the time line of a lease with the default TTL that is not renewed.
func lease() string {
	const left, perSecond = 26, 11 // pixels
	x := func(seconds int) int { return left + perSecond*seconds }
	var c canvas
	c.text(16, 30, "name", "start", "A lease of 30 s whose renewals fail")
	bar := func(y, from, to int, class, name string) {
		c.text(x(from), y-6, "", "start", name)
		c.add(`<rect class="%s" x="%d" y="%d" width="%d" height="14" rx="2"/>`, class, x(from), y, x(to)-x(from))
	}
	bar(66, 0, 25, "hold", "A's context is live, the work runs")
	bar(110, 25, 30, "grace", "grace")
	bar(154, 30, 36, "next", "B's turn")
	c.add(`<path class="ask" d="M%d 186H%d"/>`, x(0), x(36))
	c.add(`<path class="head" d="M%d 186l-7 -4v8z"/>`, x(36)+6)
	for row, mark := range []struct {
		at   int
		text string
	}{
		{0, "The last request that succeeded was sent."},
		{10, "TTL/3: renewal is due. Attempts are repeated."},
		{25, "TTL − grace: the context ends with ErrLost."},
		{30, "TTL: the backend may grant the lock to B."},
	} {
		at, y := fmt.Sprintf("%d s", mark.at), 234+22*row
		c.add(`<path class="tick dashed" d="M%d 66V191"/>`, x(mark.at))
		c.text(x(mark.at), 206, "", "middle", at)
		c.text(16, y, "name", "start", at)
		c.text(58, y, "", "start", mark.text)
	}
	c.text(16, 334, "minor", "start", "A renewal that succeeds starts the time line anew,")
	c.text(16, 334+line, "minor", "start", "from the moment at which it was sent.")
	return c.svg("The time line of a lease", 366)
}
