//! The shared limit over real connections: a provider with a real bucket, a prefix that is written once.
use super::Talk;
use crate::server::{Answer, Asked, Delivery, Said, Server};
use spinney::{
    clock::Clock,
    http::Client,
    llm::{Endpoint, Endpoints, HttpModel, Limiter, Model, Protocol, Secret, Silent},
    tasks::Tasks,
};
use std::{sync::Mutex, time::Duration};

/// No test waits longer than this for what must come.
const LONG: Duration = Duration::from_secs(15);

fn model(server: &Server) -> HttpModel {
    let mut endpoints = Endpoints::default();
    endpoints.insert(Endpoint::new("anthropic", Protocol::Anthropic, &server.anthropic_url()).with_key(Secret::new("key")));
    let clock = Clock::system();
    HttpModel::new(Client::new().unwrap(), endpoints, Limiter::new(clock.clone(), 64), clock)
}

/// A bucket of thirty requests that is filled again in a second, and says what is left.
struct Bucket {
    level: f64,
    at: Duration,
}

const SIZE: f64 = 30.0;

impl Bucket {
    fn answer(&mut self, now: Duration, asked: &Asked) -> Answer {
        self.level = (self.level + SIZE * now.saturating_sub(self.at).as_secs_f64()).min(SIZE);
        self.at = now;
        let is_taken = self.level >= 1.0;
        self.level -= if is_taken { 1.0 } else { 0.0 };
        let reset = format!("{}ms", ((SIZE - self.level) / SIZE * 1_000.0).ceil());
        let headers = vec![
            ("x-ratelimit-limit-requests", SIZE.to_string()),
            ("x-ratelimit-remaining-requests", self.level.floor().to_string()),
            ("x-ratelimit-reset-requests", reset),
        ];
        if is_taken {
            Answer::Status(200, headers, String::from_utf8(Said::text("done").anthropic(asked)).unwrap())
        } else {
            let again = ("retry-after-ms", ((1.0 - self.level) / SIZE * 1_000.0).ceil().to_string());
            Answer::Status(429, headers.into_iter().chain([again]).collect(), r#"{"error":{"type":"rate_limit_error"}}"#.to_owned())
        }
    }
}

#[tokio::test]
async fn fifty_agents_at_a_real_bucket_are_rarely_rejected_and_none_is_lost() {
    let clock = Clock::system();
    let bucket = Mutex::new(Bucket { level: SIZE, at: clock.elapsed() });
    let server = Server::start(move |asked| bucket.lock().unwrap().answer(clock.elapsed(), asked)).await;
    let model = model(&server);
    let mut tasks = Tasks::default();
    for agent in 0..50 {
        let model = model.clone();
        let work = async move {
            let mut talk = Talk::new("anthropic/claude-opus-5-5", &format!("task {agent}"));
            for _ in 0..2 {
                let reply = model.reply(&talk.call(), &Silent).await.unwrap();
                talk.answer(&reply, "go on");
            }
            true
        };
        tasks.spawn(work, |_| false);
    }
    let mut done = 0;
    while let Some(is_done) = tasks.next().await {
        done += u32::from(is_done);
    }
    let rejected = server.asked().len() - 100;
    assert_eq!(done, 50, "nobody is lost");
    assert!(rejected < 10, "{rejected} of 100 were rejected");
}

#[tokio::test]
async fn others_wait_for_the_first_reply_to_begin_and_not_for_its_end() {
    let server = Server::start_with(|asked| {
        let stalls = Delivery { stall_at: Some(200), ..Delivery::default() };
        (Answer::Say(Said::text("done")), if asked.number == 0 { stalls } else { Delivery::default() })
    })
    .await;
    let model = model(&server);
    let talk = |task: &str| Talk { system: "A rule that all agents share. ".repeat(300), ..Talk::new("anthropic/claude-opus-5-5", task) };
    let (first, second) = (talk("first"), talk("second"));
    let (first_call, second_call) = (first.call(), second.call());
    let second = tokio::time::timeout(LONG, async {
        tokio::select! {
            biased;
            _ = model.reply(&first_call, &Silent) => None,
            second = model.reply(&second_call, &Silent) => Some(second),
        }
    });
    assert_eq!(second.await.unwrap().expect("the first one's reply never ends").unwrap().text(), "done");
    assert!(String::from_utf8_lossy(&server.asked()[0].body).contains("first"));
}
