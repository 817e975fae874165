//! What a prediction asks of the trees, and what another answer would make of it: for fits that ask more of trees than their data do.

use super::TimeModel;
use preflop_gpu::Gpu;
use preflop_learned::trees::{Features, Forest};
use preflop_ops::OpCall;

impl TimeModel {
    /// The trees that the model asks about a call on a GPU, and what it asks them; nothing where nobody is asked.
    pub fn question_of<'a>(&'a self, call: &OpCall, gpu: &'a Gpu) -> Option<(&'a Forest, Box<Features>)> {
        let choice = self.choice(call, gpu);
        let products = self.products_of(call, choice.as_ref(), gpu);
        let question = self.sketch(call, choice.as_ref(), products, gpu).question;
        question.forest.zip(question.x)
    }

    /// Seconds that the model would predict for a call on a GPU, had the trees answered so.
    pub fn seconds_if(&self, learned: f64, call: &OpCall, gpu: &Gpu) -> f64 {
        let choice = self.choice(call, gpu);
        let products = self.products_of(call, choice.as_ref(), gpu);
        let draft = self.sketch(call, choice.as_ref(), products, gpu).finished(learned, gpu);
        self.settled(call, &draft, gpu).time.0
    }
}
