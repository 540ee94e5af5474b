package pty

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// envChild makes this program one of the children below.
const envChild = "PTY_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(envChild); name != "" {
		child(name)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func raw() {
	cmd := exec.Command("stty", "raw", "-echo")
	cmd.Stdin = os.Stdin
	if err := cmd.Run(); err != nil {
		fmt.Println("stty:", err)
		os.Exit(3)
	}
}

func child(name string) {
	switch name {
	case "tui":
		tui(false, 0)
	case "tui-swallows": // Enters that come after a paste, as many as its argument says
		n, err := strconv.Atoi(os.Args[1])
		if err != nil {
			panic(err)
		}
		tui(false, n)
	case "dialog": // takes Enter for a yes, and shows no paste
		raw()
		fmt.Print("\x1b[?2004h\x1b[2J\x1b[HDo you want to proceed?\r\n> 1. Yes\r\n  2. No")
		in := bufio.NewReader(os.Stdin)
		for {
			c, err := in.ReadByte()
			if err != nil {
				return
			}
			if c == '\r' {
				fmt.Print("\r\nAPPROVED")
			}
		}
	case "keys": // takes every key for an answer
		raw()
		fmt.Print("Proceed? (y/n)")
		in := bufio.NewReader(os.Stdin)
		for {
			if c, err := in.ReadByte(); err != nil || c == 'y' {
				fmt.Print("\r\nAPPROVED")
			}
		}
	case "secret": // asks for a password
		cmd := exec.Command("stty", "-echo")
		cmd.Stdin = os.Stdin
		_ = cmd.Run()
		fmt.Print("Password: ")
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			fmt.Printf("\r\ngot %q", in.Text())
		}
	case "tui-slow":
		tui(true, 0)
	case "plain": // a line after the other, as the terminal edits them
		fmt.Print("ready\r\n")
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			fmt.Printf("line %q\n", in.Text())
		}
	case "deaf": // to hangups
		signal.Ignore(syscall.SIGHUP, syscall.SIGTERM)
		fmt.Print("ready\r\n")
		time.Sleep(time.Hour)
	case "jobs": // a job in a group of its own, as shells have them
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			fmt.Print(err)
		}
		fmt.Printf("pids %d %d \r\n", os.Getpid(), cmd.Process.Pid)
		time.Sleep(time.Hour)
	case "flood":
		line := strings.Repeat("x", 1000) + "\r\n"
		for range 4096 {
			fmt.Print(line)
		}
		fmt.Print("DONE\r\n")
		time.Sleep(time.Hour)
	case "dies":
		fmt.Print("no such model\r\n")
		os.Exit(7)
	case "asks": // the terminal, and says what it heard
		raw()
		fmt.Print("abc\x1b[6n\x1b[c")
		buf := make([]byte, 256)
		got := ""
		for !strings.Contains(got, "c") {
			n, err := os.Stdin.Read(buf)
			if err != nil {
				return
			}
			got += string(buf[:n])
		}
		fmt.Printf("\r\nheard %q", got)
		time.Sleep(time.Hour)
	case "shows":
		fmt.Printf("args %q\r\n", os.Args[1:])
		for _, e := range os.Environ() {
			if strings.HasPrefix(e, "OSSICLE_") || strings.HasPrefix(e, "TERM=") {
				fmt.Printf("%s\r\n", e)
			}
		}
		if len(os.Args) > 1 {
			_, path, _ := strings.Cut(os.Args[1], "=")
			info, err := os.Stat(path)
			if err == nil {
				fmt.Printf("file %v\r\n", info.Mode())
			}
		}
		time.Sleep(time.Hour)
	}
}

// tui is a program with an input line: it takes bracketed pastes, and says what it
// was sent. A slow one draws while it works. Of the Enters behind a paste it swallows
// as many as it is told, the first as one more line of its input.
func tui(slow bool, swallow int) {
	raw()
	enters := 0
	fmt.Print("\x1b[?2004h\x1b[2J\x1b[Hwelcome\r\n> ")
	in := bufio.NewReader(os.Stdin)
	line, pasting, swallowed := "", false, swallow
	for {
		c, err := in.ReadByte()
		if err != nil {
			return
		}
		if c == '\r' && !pasting {
			enters++
		}
		switch {
		case c == 0x05: // Ctrl-E
			fmt.Printf("\r\nafter %d Enters", enters)
		case c == 0x1b:
			c2, _ := in.ReadByte()
			if c2 != '[' {
				fmt.Print("\r\nESCAPED\r\n> ")
				if c2 == 0 {
					return
				}
				continue
			}
			code, _ := in.ReadString('~')
			pasting = code == "200~"
			swallowed = 0
		case c == '\r' && !pasting && swallowed < swallow:
			if swallowed++; swallowed == 1 {
				fmt.Print("\r\n| ")
			}
		case c == '\r' && !pasting:
			if slow {
				for i := range 20 {
					fmt.Printf("\r\x1b[Kworking %d", i)
					time.Sleep(50 * time.Millisecond)
				}
			}
			fmt.Printf("\r\nsaid %q\r\n> ", line)
			line = ""
		default:
			line += string(rune(c))
			if c >= ' ' {
				fmt.Printf("%c", c)
			} else {
				fmt.Print("\r\n| ")
			}
		}
	}
}
