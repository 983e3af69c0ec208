//! A prefetch policy, in words: a policy of its own for each client.

use std::collections::{BTreeMap, VecDeque};

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::prefetch::{Answer, ClientId, Event, PrefetchPolicy, Told};

use crate::Policy;

/// The policies of all clients.
#[derive(Debug)]
pub struct PrefetchWords<P> {
    limits: PolicyLimits,
    config: Vec<u8>,
    answers_max: usize,
    clients: BTreeMap<ClientId, Client<P>>,
    /// Kept between calls for its room.
    events: Vec<Event>,
}

#[derive(Debug)]
struct Client<P> {
    policy: P,
    /// Answers that did not fit.
    left_over: VecDeque<Answer>,
    /// Events came since it was asked.
    is_told: bool,
}

impl<P: Policy + PrefetchPolicy> PrefetchWords<P> {
    /// For policies with this configuration; they answer at most `answers_max` times in a call.
    ///
    /// # Errors
    /// What the policy finds wrong with its configuration.
    pub fn new(limits: PolicyLimits, answers_max: usize, config: &[u8]) -> Result<Self, String> {
        P::new(limits, config)?;
        let (clients, events) = (BTreeMap::new(), Vec::new());
        Ok(Self { limits, config: config.to_owned(), answers_max, clients, events })
    }

    /// Hands a batch over: what concerns one client and comes one after the other goes to its policy
    /// at once.
    pub fn on_events(&mut self, now_ms: u64, words: &[u64]) {
        let (packed, _) = words.as_chunks::<{ Told::WORDS }>();
        let mut told_to = None;
        for told in packed.iter().filter_map(|&words| Told::unpack(words)) {
            match told {
                Told::Event { client, event } => {
                    if told_to.is_some_and(|other| other != client) {
                        self.tell(now_ms, told_to);
                    }
                    told_to = Some(client);
                    self.events.push(event);
                }
                Told::Left { client } => {
                    self.tell(now_ms, told_to.take());
                    self.clients.remove(&client);
                }
            }
        }
        self.tell(now_ms, told_to);
    }

    /// Asks what is wanted for a client.
    pub fn propose(&mut self, now_ms: u64, client: u32, want: u32) -> Vec<u64> {
        let Some(client) = self.clients.get_mut(&ClientId(client)) else { return Vec::new() };
        if client.left_over.len() < self.answers_max {
            // Time goes by without events, too.
            if !std::mem::take(&mut client.is_told) {
                client.policy.on_events(now_ms, &[]);
            }
            let is_list = |answer: &&Answer| matches!(answer, Answer::List(_));
            let listed = client.left_over.iter().filter(is_list).count();
            let mut answers = Vec::new();
            let want = (want as usize).saturating_sub(listed);
            client.policy.propose(now_ms, want, &mut answers);
            client.left_over.extend(answers);
        }
        let now = client.left_over.len().min(self.answers_max);
        client.left_over.drain(..now).flat_map(|answer| answer.pack()).collect()
    }

    fn tell(&mut self, now_ms: u64, client: Option<ClientId>) {
        let Some(id) = client else { return };
        if !self.clients.contains_key(&id)
            && let Ok(policy) = P::new(self.limits, &self.config)
        {
            let client = Client { policy, left_over: VecDeque::new(), is_told: false };
            self.clients.insert(id, client);
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.policy.on_events(now_ms, &self.events);
            client.is_told = true;
        }
        self.events.clear();
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::prefetch::{DirId, Entry};

    use super::*;

    /// Lists what is entered, and forgets what was listed.
    struct Echo(Vec<Answer>);

    impl Policy for Echo {
        const NAME: &str = "echo";
        const VERSION: &str = "1";

        fn new(_limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
            if config.is_empty() { Ok(Self(Vec::new())) } else { Err("no config".to_owned()) }
        }
    }

    impl PrefetchPolicy for Echo {
        fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
            for event in events {
                match *event {
                    Event::Entered { dir, .. } => self.0.push(Answer::List(dir)),
                    Event::Listed { dir } => self.0.push(Answer::Forget(dir)),
                    Event::Subdir { .. } | Event::Lost { .. } => {}
                }
            }
        }

        fn propose(&mut self, _now_ms: u64, want: usize, answers: &mut Vec<Answer>) {
            let mut lists = 0;
            self.0.retain(|&answer| {
                let is_list = matches!(answer, Answer::List(_));
                lists += usize::from(is_list);
                if is_list && lists > want {
                    return true;
                }
                answers.push(answer);
                false
            });
        }
    }

    const LIMITS: PolicyLimits = PolicyLimits { capacity_bytes: 1 << 20, seed: 0 };

    fn entered(client: u32, dir: u64) -> [u64; 3] {
        let event = Event::Entered { dir: DirId(dir), entry: Entry::Missed };
        Told::Event { client: ClientId(client), event }.pack()
    }

    fn words(answers_max: usize) -> PrefetchWords<Echo> {
        PrefetchWords::new(LIMITS, answers_max, b"").expect("no config is fine")
    }

    fn list(dirs: &[u64]) -> Vec<u64> {
        dirs.iter().flat_map(|&dir| Answer::List(DirId(dir)).pack()).collect()
    }

    #[test]
    fn each_client_has_a_policy_of_its_own_until_it_leaves() {
        let mut words = words(100);
        words.on_events(0, &[entered(1, 10), entered(2, 10), entered(1, 11)].concat());
        assert_eq!(words.propose(0, 1, 8), list(&[10, 11]));
        words.on_events(0, &[Told::Left { client: ClientId(2) }.pack(), entered(1, 12)].concat());
        assert_eq!(words.propose(0, 2, 8), [], "it has left");
        assert_eq!(words.propose(0, 1, 8), list(&[12]));
        assert_eq!(words.clients.len(), 1);
    }

    #[test]
    fn what_does_not_fit_comes_the_next_time_and_counts() {
        let mut words = words(2);
        words.on_events(0, &(1..=5).flat_map(|dir| entered(7, dir)).collect::<Vec<_>>());
        assert_eq!(words.propose(0, 7, 3), list(&[1, 2]));
        // One is left over, so one more is wanted.
        assert_eq!(words.propose(0, 7, 2), list(&[3, 4]));
        assert_eq!(words.propose(0, 7, 0), []);
        assert_eq!(words.propose(0, 7, 9), list(&[5]));
    }

    #[test]
    fn words_that_nobody_knows_are_skipped() {
        let mut words = words(9);
        words.on_events(0, &[&[3 << 32 | 99, 1, 2][..], &entered(3, 4), &[1, 2]].concat());
        assert_eq!(words.propose(0, 3, 9), list(&[4]));
        assert!(PrefetchWords::<Echo>::new(LIMITS, 9, b"x").is_err());
    }
}
