//! What the sandbox promises, tried on real processes.
use super::*;
use std::fs;

fn sandbox() -> Sandbox {
    Sandbox::new(Options::default()).unwrap()
}

fn shell(command: &str) -> Request {
    let env = [("PATH", DEFAULT_PATH), ("HOME", "/root"), ("SPINNEY", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    Request {
        program: Program::Shell(command.to_owned()),
        cwd: std::env::temp_dir(),
        env: env.into(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(20),
        output_cap: 4096,
        confine: Confinement::None,
    }
}

fn text(captured: &Captured) -> String {
    captured.text()
}

/// Returns whether a process runs; one that is dead but not waited for does not.
fn is_running(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat[stat.rfind(')').unwrap()..].starts_with(") Z"))
}

/// Returns whether a process is gone, or will be at once: what was killed takes a while to die on a busy machine.
fn is_gone(pid: &str) -> bool {
    let clock = Clock::system();
    let late = clock.now().after(Duration::from_secs(10));
    while is_running(pid) && clock.now() < late {
        std::thread::yield_now();
    }
    !is_running(pid)
}

#[test]
fn output_exit_and_environment_are_exact() {
    let output = sandbox().run_blocking(&shell("echo out; echo err >&2; env; cat; exit 3")).unwrap();
    assert_eq!(output.exit, Exit::Code(3));
    assert_eq!(text(&output.stderr), "err\n");
    let stdout = text(&output.stdout);
    let mut names: Vec<&str> = stdout.lines().skip(1).map(|line| line.split('=').next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "PATH", "PWD", "SHLVL", "SPINNEY", "SPINNEY_COMMAND", "_"]);
    assert_eq!(output.stdout.whole.as_deref(), Some(stdout.as_bytes()));
    assert_eq!(sandbox().run_blocking(&shell("kill -9 $$")).unwrap().exit, Exit::Signal(9));
}

#[test]
fn programs_are_found_on_the_requests_path_and_errors_name_them() {
    let exec = |program: &str| Program::Exec { program: program.into(), args: vec!["a b".into(), "".into()] };
    let output = sandbox().run_blocking(&Request { program: exec("printf"), ..shell("") }).unwrap();
    assert_eq!(text(&output.stdout), "a b");
    let missing = sandbox().run_blocking(&Request { program: exec("no-such-program"), ..shell("") }).unwrap_err();
    assert_eq!(missing.to_string(), "find the program `no-such-program`");
    let missing = sandbox().run_blocking(&Request { cwd: "/no/such".into(), ..shell("true") }).unwrap_err();
    assert_eq!(missing.to_string(), "enter the folder `/no/such`");
}

/// The system takes 128 KiB in one argument; a command may be longer, with input or without, and nobody else inherits it.
#[test]
fn a_command_may_be_longer_than_one_argument() {
    let sandbox = sandbox();
    let long = "é".repeat(90_000);
    let command = format!("set -- a b; read line; printf %s '{long}' | wc -m; echo \"$0 $# $line\"; exit 7");
    let walls = Confinement::Bubblewrap(Walls { writable: vec![std::env::temp_dir()], ..Walls::default() });
    let mut confinements = vec![Confinement::None];
    confinements.extend(sandbox.bubblewrap().map(|_| walls));
    for confine in confinements {
        let env = [("PATH".to_owned(), DEFAULT_PATH.to_owned()), ("LC_ALL".to_owned(), "C.UTF-8".to_owned())].into();
        let request = Request { env, stdin: b"said\n".to_vec(), confine, ..shell(&command) };
        let output = sandbox.run_blocking(&request).unwrap();
        let name = sandbox.shell().display();
        assert_eq!((output.exit, text(&output.stdout)), (Exit::Code(7), format!("90000\n{name} 2 said\n")), "{}", text(&output.stderr));
    }
    let variable = Request { env: [("FINDINGS".to_owned(), long)].into(), ..shell("true") };
    let error = sandbox.run_blocking(&variable).unwrap_err();
    assert!(error.to_string().contains("`FINDINGS`: its value has 180000 bytes") && error.hint().is_some(), "{error}");
}

#[test]
fn input_is_given_whole_and_closed_and_may_be_ignored() {
    let stdin = vec![b'x'; 1 << 20];
    let output = sandbox().run_blocking(&Request { stdin: stdin.clone(), ..shell("wc -c") }).unwrap();
    assert_eq!(text(&output.stdout).trim(), "1048576");
    let output = sandbox().run_blocking(&Request { stdin, ..shell("echo ignored; exit 0") }).unwrap();
    assert_eq!((output.exit, text(&output.stdout).as_str()), (Exit::Code(0), "ignored\n"));
}

#[test]
fn both_streams_flow_while_input_is_written() {
    let request = Request { stdin: vec![b'y'; 1 << 20], output_cap: 10, ..shell("tee /dev/stderr") };
    let output = sandbox().run_blocking(&request).unwrap();
    assert_eq!((output.stdout.total, output.stderr.total), (1 << 20, 1 << 20));
    assert_eq!(output.stdout.whole.unwrap().len(), 1 << 20);
    assert_eq!((output.stdout.head.len(), output.stdout.tail.len()), (5, 5));
}

#[test]
fn a_timeout_kills_the_group_and_keeps_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let request = |command: &str| Request { cwd: folder.path().to_owned(), timeout: Duration::from_secs(1), ..shell(command) };
    // A writer that feeds a pipe for ever behind the shell's back.
    let output = sandbox().run_blocking(&request("mkfifo p; (while :; do echo c; sleep 0.05; done) > p & echo $!; cat p")).unwrap();
    assert_eq!(output.exit, Exit::TimedOut);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("c\n"));
    assert!(is_gone(stdout.lines().next().unwrap()));
    // Children that do not hear the request to end.
    let output = sandbox().run_blocking(&request("trap '' TERM; (trap '' TERM; sleep 60) & echo $! $$; wait")).unwrap();
    assert_eq!(output.exit, Exit::TimedOut);
    assert!(text(&output.stdout).split_whitespace().all(is_gone));
}

#[test]
fn what_is_left_in_the_background_dies_with_the_command() {
    let output = sandbox().run_blocking(&shell("trap '' TERM; sleep 60 & echo $!; exit 0")).unwrap();
    assert_eq!(output.exit, Exit::Code(0));
    assert!(is_gone(text(&output.stdout).trim()));
    let output = sandbox().run_blocking(&shell("nohup sleep 60 >/dev/null 2>&1 & echo $!")).unwrap();
    assert!(is_gone(text(&output.stdout).trim()));
    // Last words are still heard.
    let output = sandbox().run_blocking(&shell("(echo late) & exit 0")).unwrap();
    assert_eq!(text(&output.stdout), "late\n");
}

#[test]
fn a_daemon_dies_with_the_command_that_started_it() {
    let output = sandbox().run_blocking(&shell("setsid sh -c 'setsid sleep 60 & echo $!; exec sleep 60' & echo $!; sleep 0.3")).unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().count(), 2, "{stdout}");
    assert!(stdout.lines().all(is_gone), "{stdout}");
}

#[test]
fn a_daemon_is_reaped_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, ready) = (folder.path().join("live"), folder.path().join("ready"));
    let sandbox = Sandbox::new(Options { registry: Some(registry.clone()), ..Options::default() }).unwrap();
    let command = format!("setsid sh -c 'echo $$ > {0}.part; mv {0}.part {0}; exec sleep 60' & sleep 60", ready.display());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| sandbox.run_blocking(&shell(&command)).unwrap().exit);
        while !ready.exists() {
            std::thread::yield_now();
        }
        assert_eq!(reap(&registry).unwrap(), 1);
        assert!(is_gone(fs::read_to_string(&ready).unwrap().trim()));
        assert_eq!(running.join().unwrap(), Exit::Signal(9));
    });
}

/// This program may die when a process is there and its group is not noted yet.
#[test]
fn what_was_only_announced_is_reaped_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let (live, ready) = (folder.path().join("live"), folder.path().join("ready"));
    let registry = group::Registry::open(live.clone()).unwrap();
    let command = format!("echo $SPINNEY_COMMAND > {0}.part; mv {0}.part {0}; exec sleep 60", ready.display());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| sandbox().run_blocking(&shell(&command)).unwrap().exit);
        while !ready.exists() {
            std::thread::yield_now();
        }
        let token = group::Token::parse(fs::read_to_string(&ready).unwrap().trim()).unwrap();
        std::mem::forget(registry.announce(&token).unwrap());
        assert_eq!(reap(&live).unwrap(), 1);
        assert_eq!(running.join().unwrap(), Exit::Signal(9));
    });
    assert_eq!(fs::read_dir(&live).unwrap().count(), 0);
    // Whoever is started leaves nothing announced, and neither does what cannot be started.
    let sandbox = Sandbox::new(Options { registry: Some(live.clone()), ..Options::default() }).unwrap();
    assert_eq!(sandbox.run_blocking(&shell("exit 0")).unwrap().exit, Exit::Code(0));
    assert_eq!(fs::read_dir(&live).unwrap().count(), 0);
}

#[test]
fn a_stopped_process_is_ended_too() {
    let output = sandbox().run_blocking(&Request { timeout: Duration::from_millis(200), ..shell("echo $$; kill -STOP $$") }).unwrap();
    assert_eq!(output.exit, Exit::TimedOut);
    assert!(is_gone(text(&output.stdout).trim()));
}

#[tokio::test]
async fn cancelling_ends_the_group_and_keeps_what_was_written() {
    let cancel = CancellationToken::new();
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let run = sandbox();
    let command = format!("echo $$; sleep 60 & echo $!; : > {}; wait", ready.display());
    let work = run.run(shell(&command), &cancel);
    let canceller = async {
        while !ready.exists() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (output, ()) = tokio::join!(work, canceller);
    let output = output.unwrap();
    assert_eq!(output.exit, Exit::Cancelled);
    assert_eq!(text(&output.stdout).lines().count(), 2);
    assert!(text(&output.stdout).lines().all(is_gone));
    let output = run.run(shell("echo never"), &cancel).await.unwrap();
    assert_eq!((output.exit, output.stdout.total), (Exit::Cancelled, 0));
}

#[tokio::test]
async fn dropping_the_future_ends_the_group() {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let run = sandbox();
    let never = CancellationToken::new();
    let command = format!("echo $$ > {0}.part; mv {0}.part {0}; sleep 60", ready.display());
    let mut work = Box::pin(run.run(shell(&command), &never));
    while !ready.exists() {
        tokio::select! { biased; _ = &mut work => panic!("it ended"), () = tokio::task::yield_now() => {} }
    }
    drop(work);
    let pid = fs::read_to_string(&ready).unwrap();
    while is_running(pid.trim()) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn groups_are_noted_while_they_live_and_reaped_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let registry = folder.path().join("live");
    let sandbox = Sandbox::new(Options { registry: Some(registry.clone()), ..Options::default() }).unwrap();
    let request = Request { cwd: registry.clone(), ..shell("until ls | grep -q .; do :; done; echo $$; ls") };
    let stdout = text(&sandbox.run_blocking(&request).unwrap().stdout);
    let (pid, note) = stdout.trim().split_once('\n').unwrap();
    assert!(note.starts_with(&format!("{pid}-")));
    assert_eq!(fs::read_dir(&registry).unwrap().count(), 0);

    // A survivor, as a killed program leaves it: here another sandbox's process, noted by hand.
    let survivor = std::thread::scope(|scope| {
        let ready = folder.path().join("ready");
        let command = format!("until ls {0} | grep .; do :; done > {1}.part; mv {1}.part {1}; sleep 60", registry.display(), ready.display());
        let (sandbox, request) = (&sandbox, shell(&command));
        let running = scope.spawn(move || sandbox.run_blocking(&request).unwrap().exit);
        while !ready.exists() {
            std::thread::yield_now();
        }
        let note = fs::read_to_string(&ready).unwrap().trim().to_owned();
        let parts: Vec<&str> = note.split('-').collect();
        // Another start, another boot: not the process that was noted.
        let (pid, start) = (parts[0], parts[1].parse::<u64>().unwrap());
        let wrong = [format!("{pid}-{}-{}-{}", start + 1, parts[2], parts[3]), format!("{pid}-{start}-{}-otherboot", parts[2])];
        let strangers = folder.path().join("strangers");
        fs::create_dir(&strangers).unwrap();
        for name in wrong {
            fs::write(strangers.join(name), "").unwrap();
        }
        assert_eq!(reap(&strangers).unwrap(), 0);
        assert_eq!(fs::read_dir(&strangers).unwrap().count(), 0);
        assert!(is_running(pid));
        assert_eq!(reap(&registry).unwrap(), 1);
        running.join().unwrap()
    });
    assert_eq!(survivor, Exit::Signal(9));
    assert_eq!(reap(&folder.path().join("missing")).unwrap(), 0);
}

#[test]
#[expect(clippy::print_stderr, clippy::disallowed_methods, reason = "a test that cannot be made here says so, and is none where all must be")]
fn walls_hold() {
    let sandbox = sandbox();
    if sandbox.bubblewrap().is_none() {
        eprintln!("not tested: walls around commands: bubblewrap is not here, or does not work here");
        assert!(std::env::var_os("SPINNEY_TEST_ALL").is_none(), "not tested");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().canonicalize().unwrap().join(name);
    for name in ["work", "work/held", "tools", "secret"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::write(path("secret/key"), "key").unwrap();
    fs::write(path("tools/tool"), "tool").unwrap();
    let walls = Walls { writable: vec![path("work")], readable: vec![path("tools"), path("work/held"), path("missing")], ..Walls::default() };
    let script = "
        echo made > made || echo FAIL write; cat ../tools/tool || echo FAIL read
        touch held/x 2>/dev/null && echo ESCAPE held; touch ../tools/x 2>/dev/null && echo ESCAPE tools
        ls ../secret 2>/dev/null && echo ESCAPE secret; touch /usr/x 2>/dev/null && echo ESCAPE usr
        test -e /etc/shadow && echo ESCAPE shadow; ls -A ~ | grep . && echo ESCAPE home
        touch /tmp/private ~/private || echo FAIL tmp; (exec 3<>/dev/tcp/127.0.0.1/PORT) 2>/dev/null && echo ESCAPE net
        test $(ls -d /proc/[0-9]* | wc -l) -lt 12 || echo ESCAPE proc
        (setsid sleep 60 >/dev/null 2>&1 &); unshare -U true 2>/dev/null && echo ESCAPE userns; exit 7";
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let request = Request { cwd: path("work"), confine: Confinement::Bubblewrap(walls.clone()), ..shell(&script.replace("PORT", &port)) };
    let output = sandbox.run_blocking(&request).unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!said.contains("ESCAPE") && !said.contains("FAIL"), "{said}");
    assert_eq!(output.exit, Exit::Code(7), "{said}");
    assert_eq!(fs::read_to_string(path("work/made")).unwrap(), "made\n");
    let connect = Program::Shell(format!("exec 3<>/dev/tcp/127.0.0.1/{port}"));
    let open = Confinement::Bubblewrap(Walls { network: Network::Full, ..walls });
    assert_eq!(sandbox.run_blocking(&Request { program: connect, confine: open, ..request.clone() }).unwrap().exit, Exit::Code(0));
    let missing = Walls { writable: vec![path("missing")], ..Walls::default() };
    let error = sandbox.run_blocking(&Request { confine: Confinement::Bubblewrap(missing), ..request.clone() }).unwrap_err();
    assert!(matches!(error, SandboxError::NoWritable(_)));
    let output = sandbox
        .run_blocking(&Request { timeout: Duration::from_millis(300), program: Program::Shell("trap '' TERM; sleep 60; sleep 60".to_owned()), ..request })
        .unwrap();
    assert_eq!(output.exit, Exit::TimedOut);
}
