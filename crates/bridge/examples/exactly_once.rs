//! An effect that happens once, although jobs run more than once.
//!
//! Consumers pay into a balance, and are killed again and again in the middle of it. Jobs that had
//! begun run again. The balance gets each payment once, because the payment and the acknowledgement
//! are one step of the server.

use std::error::Error;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use uwork_bridge::{Bridge, Config, Handlers, Producer, Push, Reply, Server, Stat};

const PAYMENTS: u64 = 1_000;
/// Payments between two kills.
const STEP: u64 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(url) = std::env::args().nth(1) {
        return consume(&url);
    }
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("redis.sock");
    let mut redis = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--unixsocket"])
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn()?;
    while UnixStream::connect(&socket).is_err() {
        if redis.try_wait()?.is_some() {
            return Err("redis-server has ended".into());
        }
        std::thread::yield_now();
    }
    let outcome = pay(&format!("unix://{}", socket.display()));
    redis.kill()?;
    redis.wait()?;
    outcome
}

/// Pushes the payments, and kills consumers until all are done.
fn pay(url: &str) -> Result<(), Box<dyn Error>> {
    let server = Server::new(url)?;
    let push = |n: u64| Push::new(n.to_string()).id(format!("payment:{n}"));
    let mut producer = Producer::new(vec![server.clone()], "jobs", 1)?;
    producer.push_all((1..=PAYMENTS).map(push).collect())?;

    let done = || Stat::read(server.clone(), "jobs", "uwork").map(|stat| stat.done);
    let mut kills = 0;
    while done()? < PAYMENTS {
        let goal = (done()? + STEP).min(PAYMENTS);
        let mut consumer = start(url)?;
        let paid = loop {
            match done() {
                Ok(number) if number < goal && consumer.try_wait()?.is_none() => {}
                paid => break paid,
            }
            std::thread::yield_now();
        };
        consumer.kill()?;
        consumer.wait()?;
        if paid? < goal {
            return Err("a consumer has ended".into());
        }
        kills += 1;
    }
    let number = |key: &str| -> Result<u64, Box<dyn Error>> {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        Ok(redis::cmd("GET").arg(key).query(&mut connection)?)
    };
    let (runs, balance) = (number("runs")?, number("balance")?);
    println!("{PAYMENTS} payments, {kills} kills, {runs} runs, balance {balance}");
    assert_eq!(balance, PAYMENTS * (PAYMENTS + 1) / 2, "each payment once");
    Ok(())
}

/// This program again, as a consumer.
fn start(url: &str) -> Result<Child, Box<dyn Error>> {
    Ok(Command::new(std::env::current_exe()?).arg(url).spawn()?)
}

/// Makes payments until it is killed.
fn consume(url: &str) -> Result<(), Box<dyn Error>> {
    let client = redis::Client::open(url)?;
    let handlers = Handlers::new().otherwise(move |job| {
        // Not an effect: it counts each run.
        redis::cmd("INCR").arg("runs").exec(&mut client.get_connection()?)?;
        let amount = String::from_utf8_lossy(job.payload()).into_owned();
        let mark = format!("paid:{}", job.id());
        let pay = "redis.call('INCRBY', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], 1)";
        Ok(Reply::done().effect(["EVAL", pay, "2", "balance", &mark, &amount]))
    });
    let mut config = Config::new(Server::new(url)?, "jobs");
    config.heartbeat = Duration::from_millis(200);
    config.attempts_max = 1_000;
    let _bridge = Bridge::start(config, handlers, |line| eprintln!("{line}"))?;
    loop {
        std::thread::park();
    }
}
