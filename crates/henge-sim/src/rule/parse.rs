//! Tokens to a tree.

use super::lex::{Token, tokens};

/// An expression, read once and evaluated against what was measured.
#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    /// `120ms`
    Number(f64),
    /// A bound axis, or a variable.
    Name(String),
    /// `VD2.rate[scheduler=cvc, 10s..20s]`
    Quantity(Box<Quantity>),
    /// `-a`
    Negative(Box<Expr>),
    /// `not a`
    Not(Box<Expr>),
    /// `a + b`, `a and b`, `a < b`
    Binary(&'static str, Box<Expr>, Box<Expr>),
    /// `a ~ b within 5%`
    Near(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `max(a, b)`
    Call(String, Vec<Expr>),
    /// `all(S >= 11: …)`
    Fold(Box<Fold>),
}

/// Something that a run measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantity {
    /// A flow, `total`, or a node.
    pub of: String,
    /// Which measure.
    pub what: String,
    /// Its arguments.
    pub arguments: Vec<Expr>,
    /// Which run: axis and value.
    pub run: Vec<(String, String)>,
    /// Which part of the run, in seconds.
    pub period: Option<(Expr, Expr)>,
}

/// One expression over all values of an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Fold {
    /// `all`, `any`, `count`, `min`, `max`, `mean`, `sum`
    pub how: String,
    /// Over which axis.
    pub axis: String,
    /// Only where this holds.
    pub when: Option<Expr>,
    /// What.
    pub body: Expr,
}

const FOLDS: [&str; 7] = ["all", "any", "count", "min", "max", "mean", "sum"];

impl Expr {
    /// Reads an expression; the error names the place.
    pub fn parse(text: &str) -> Result<Expr, String> {
        let mut parser = Parser { tokens: tokens(text)?, at: 0, text };
        let expr = parser.or()?;
        parser.expect(&Token::End)?;
        Ok(expr)
    }

    /// Whether something in it comes from a run: a quantity, or a name that `known` says is measured.
    pub fn is_measured(&self, known: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Expr::Number(_) => false,
            Expr::Name(name) => known(name),
            Expr::Quantity(_) => true,
            Expr::Negative(a) | Expr::Not(a) => a.is_measured(known),
            Expr::Binary(_, a, b) => a.is_measured(known) || b.is_measured(known),
            Expr::Near(a, b, _) => a.is_measured(known) || b.is_measured(known),
            Expr::Call(_, arguments) => arguments.iter().any(|a| a.is_measured(known)),
            // Which values of the axis count may be what was measured: the least x at which y is reached.
            Expr::Fold(fold) => {
                fold.body.is_measured(known) || fold.when.as_ref().is_some_and(|when| when.is_measured(known))
            }
        }
    }

    fn first_name(&self) -> Option<&str> {
        match self {
            Expr::Name(name) => Some(name),
            Expr::Not(a) | Expr::Negative(a) => a.first_name(),
            Expr::Binary(_, a, b) => a.first_name().or_else(|| b.first_name()),
            _ => None,
        }
    }
}

struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    at: usize,
    text: &'a str,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].1
    }
    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }
    fn takes(&mut self, sign: &str) -> bool {
        let found = match self.peek() {
            Token::Sign(s) => *s == sign,
            Token::Name(n) => n == sign,
            _ => false,
        };
        if found {
            self.advance();
        }
        found
    }
    fn wrong<T>(&self, expected: &str) -> Result<T, String> {
        let (place, token) = &self.tokens[self.at];
        Err(format!("\"{}\": expected {expected} at character {}, not {token}", self.text, place + 1))
    }
    fn expect(&mut self, token: &Token) -> Result<(), String> {
        if self.peek() == token {
            self.advance();
            return Ok(());
        }
        self.wrong(&token.to_string())
    }
    fn sign(&mut self, sign: &'static str) -> Result<(), String> {
        self.expect(&Token::Sign(sign))
    }

    fn or(&mut self) -> Result<Expr, String> {
        let mut left = self.and()?;
        while self.takes("or") {
            left = Expr::Binary("or", Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }
    fn and(&mut self) -> Result<Expr, String> {
        let mut left = self.not()?;
        while self.takes("and") {
            left = Expr::Binary("and", Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }
    fn not(&mut self) -> Result<Expr, String> {
        if self.takes("not") {
            return Ok(Expr::Not(Box::new(self.not()?)));
        }
        self.comparison()
    }
    /// `a < b`, `a < b < c`, `a ~ b within 5%`
    fn comparison(&mut self) -> Result<Expr, String> {
        let mut left = self.sum()?;
        if self.takes("~") {
            let right = self.sum()?;
            if !self.takes("within") {
                return self.wrong("\"within 5%\"");
            }
            return Ok(Expr::Near(Box::new(left), Box::new(right), Box::new(self.sum()?)));
        }
        let mut chain: Option<Expr> = None;
        while let Some(sign) = ["<=", ">=", "==", "<", ">"].into_iter().find(|s| self.takes(s)) {
            let right = self.sum()?;
            let link = Expr::Binary(sign, Box::new(left), Box::new(right.clone()));
            chain = Some(match chain {
                None => link,
                Some(before) => Expr::Binary("and", Box::new(before), Box::new(link)),
            });
            left = right;
        }
        Ok(chain.unwrap_or(left))
    }
    fn sum(&mut self) -> Result<Expr, String> {
        let mut left = self.product()?;
        while let Some(sign) = ["+", "-"].into_iter().find(|s| self.takes(s)) {
            left = Expr::Binary(sign, Box::new(left), Box::new(self.product()?));
        }
        Ok(left)
    }
    fn product(&mut self) -> Result<Expr, String> {
        let mut left = self.unary()?;
        while let Some(sign) = ["*", "/"].into_iter().find(|s| self.takes(s)) {
            left = Expr::Binary(sign, Box::new(left), Box::new(self.unary()?));
        }
        Ok(left)
    }
    fn unary(&mut self) -> Result<Expr, String> {
        if self.takes("-") {
            return Ok(Expr::Negative(Box::new(self.unary()?)));
        }
        match self.peek().clone() {
            Token::Number(n) => {
                self.advance();
                Ok(Expr::Number(n))
            }
            Token::Sign("(") => {
                self.advance();
                let inner = self.or()?;
                self.sign(")")?;
                Ok(inner)
            }
            Token::Name(name) => {
                self.advance();
                if self.takes("(") {
                    return self.call(name);
                }
                if self.takes(".") {
                    return self.quantity(name);
                }
                Ok(Expr::Name(name))
            }
            Token::Text(of) => {
                self.advance();
                self.sign(".")?;
                self.quantity(of)
            }
            _ => self.wrong("a number, a name or \"(\""),
        }
    }

    /// Behind `name(`: arguments, or the axis and body of a fold.
    fn call(&mut self, name: String) -> Result<Expr, String> {
        let first = self.or()?;
        if FOLDS.contains(&name.as_str()) && self.takes(":") {
            let Some(axis) = first.first_name().map(str::to_owned) else {
                return self.wrong("the name of an axis before it");
            };
            let when = (first != Expr::Name(axis.clone())).then_some(first);
            let body = self.or()?;
            self.sign(")")?;
            return Ok(Expr::Fold(Box::new(Fold { how: name, axis, when, body })));
        }
        let mut arguments = vec![first];
        while self.takes(",") {
            arguments.push(self.or()?);
        }
        self.sign(")")?;
        Ok(Expr::Call(name, arguments))
    }

    /// Behind `of.`
    fn quantity(&mut self, of: String) -> Result<Expr, String> {
        let Token::Name(what) = self.peek().clone() else { return self.wrong("what was measured") };
        self.advance();
        let mut quantity = Quantity { of, what, arguments: Vec::new(), run: Vec::new(), period: None };
        if self.takes("(") {
            quantity.arguments.push(self.sum()?);
            while self.takes(",") {
                quantity.arguments.push(self.sum()?);
            }
            self.sign(")")?;
        }
        if self.takes("[") {
            self.selector(&mut quantity)?;
            while self.takes(",") {
                self.selector(&mut quantity)?;
            }
            self.sign("]")?;
        }
        Ok(Expr::Quantity(Box::new(quantity)))
    }

    /// `axis=value` or `10s..20s`
    fn selector(&mut self, quantity: &mut Quantity) -> Result<(), String> {
        if let (Token::Name(axis), Token::Sign("=")) =
            (self.peek().clone(), self.tokens[self.at + 1].1.clone())
        {
            self.advance();
            self.advance();
            let value = match self.advance() {
                Token::Name(value) | Token::Text(value) => value,
                Token::Number(n) => n.to_string(),
                _ => return self.wrong("a value of the axis before it"),
            };
            quantity.run.push((axis, value));
            return Ok(());
        }
        let from = self.sum()?;
        self.sign("..")?;
        quantity.period = Some((from, self.sum()?));
        Ok(())
    }
}
