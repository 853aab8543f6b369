#include "jinja/parser.hpp"

#include <algorithm>

#include "jinja/expression_parser.hpp"

namespace fairlead::jinja {
namespace {

constexpr int kMaxStatementDepth = 100;

// The statement half of the parser.
class StatementParser : private ExpressionParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<Program> run();

 private:
  Body subparse(Names ends);
  static void add_text(std::vector<OutputPart>& parts, std::string_view text);
  static void add_expr(std::vector<OutputPart>& parts, ExprPtr expr);
  Body parse_statements(Names ends, bool drop = false);
  void fail_end(std::optional<std::string> tag);
  void parse_statement(Body& body);
  std::unique_ptr<Statement> parse_if();
  std::unique_ptr<Statement> parse_for();
  std::unique_ptr<Statement> parse_set();
  void parse_signature(MacroBody& code);
  std::string parse_target_name();
  std::unique_ptr<Statement> parse_macro();
  std::unique_ptr<Statement> parse_call_block();
  std::unique_ptr<Statement> parse_filter_block();
  std::unique_ptr<Statement> parse_with();
  std::unique_ptr<Statement> parse_print();
  std::unique_ptr<Statement> parse_generation();
  std::unique_ptr<Statement> parse_autoescape();
  std::unique_ptr<Statement> parse_block();
  std::unique_ptr<Statement> parse_jump();
  std::unique_ptr<Statement> parse_unavailable();

  int statement_depth_ = 0;
  std::vector<std::string> tags_;
  std::vector<std::vector<std::string>> ends_;
};

Result<Program> StatementParser::run() {
  Body body = subparse({});
  if (error_) {
    return std::unexpected(*error_);
  }
  program_.body = std::move(body);
  return std::move(program_);
}

// Statements until one of `ends`, whose token becomes the current one.
Body StatementParser::subparse(Names ends) {
  Body body;
  std::unique_ptr<OutputStatement> output;
  const auto flush = [&] {
    if (output) {
      body.push_back(std::move(output));
    }
  };
  const auto part = [&]() -> std::vector<OutputPart>& {
    if (!output) {
      output = std::make_unique<OutputStatement>(current().line);
    }
    return output->parts;
  };
  while (!failed() && !at(TokenType::Eof)) {
    if (at(TokenType::Data)) {
      add_text(part(), current().text);
      next();
    } else if (skip(TokenType::VariableBegin)) {
      auto& parts = part();
      add_expr(parts, parse_tuple());
      expect(TokenType::VariableEnd);
    } else {
      flush();
      next();
      if (ends.size() != 0 && at_any_name(ends)) {
        return body;
      }
      parse_statement(body);
      if (!failed()) {
        expect(TokenType::BlockEnd);
      }
    }
  }
  flush();
  return body;
}

void StatementParser::add_text(std::vector<OutputPart>& parts, std::string_view text) {
  if (!parts.empty() && !parts.back().expr) {
    parts.back().text += text;
  } else {
    parts.push_back({std::string(text), nullptr});
  }
}

void StatementParser::add_expr(std::vector<OutputPart>& parts, ExprPtr expr) {
  if (is_const(expr)) {
    Runtime runtime({}, std::nullopt);
    std::string text;
    if (append_str(runtime, text, const_value(expr))) {
      add_text(parts, text);
      return;
    }
  }
  parts.push_back({{}, std::move(expr)});
}

// The body of a statement, up to one of `ends`; with `drop`, that one is passed.
Body StatementParser::parse_statements(Names ends, bool drop) {
  skip(TokenType::Colon);
  if (!expect(TokenType::BlockEnd)) {
    return {};
  }
  ends_.emplace_back(ends.begin(), ends.end());
  if (++statement_depth_ > kMaxStatementDepth) {
    error("statements are nested too deeply");
  }
  Body body = subparse(ends);
  --statement_depth_;
  if (at(TokenType::Eof) && !failed()) {
    fail_end(std::nullopt);
  }
  ends_.pop_back();
  if (drop) {
    next();
  }
  return body;
}

void StatementParser::fail_end(std::optional<std::string> tag) {
  std::string looking;
  bool nesting = false;
  for (const auto& ends : ends_) {
    nesting = nesting || (tag && std::ranges::find(ends, *tag) != ends.end());
  }
  if (!ends_.empty()) {
    for (const std::string& end : ends_.back()) {
      looking += (looking.empty() ? "'" : " or '") + end + "'";
    }
  }
  std::string message =
      tag ? "Encountered unknown tag '" + *tag + "'." : "Unexpected end of template.";
  if (!looking.empty()) {
    message += nesting ? " You probably made a nesting mistake. Jinja is expecting this tag, but "
                         "currently looking for " +
                             looking + "."
                       : " Jinja was looking for the following tags: " + looking + ".";
  }
  if (!tags_.empty()) {
    message += " The innermost block that needs to be closed is '" + tags_.back() + "'.";
  }
  error(std::move(message));
}

void StatementParser::parse_statement(Body& body) {
  if (!at(TokenType::Name)) {
    error("tag name expected");
    return;
  }
  const std::string tag = current().text;
  using Parse = std::unique_ptr<Statement> (StatementParser::*)();
  struct Row {
    std::string_view tag;
    Parse parse;
  };
  static constexpr Row kRows[] = {
      {"if", &StatementParser::parse_if},
      {"for", &StatementParser::parse_for},
      {"set", &StatementParser::parse_set},
      {"macro", &StatementParser::parse_macro},
      {"call", &StatementParser::parse_call_block},
      {"filter", &StatementParser::parse_filter_block},
      {"with", &StatementParser::parse_with},
      {"print", &StatementParser::parse_print},
      {"generation", &StatementParser::parse_generation},
      {"break", &StatementParser::parse_jump},
      {"continue", &StatementParser::parse_jump},
      {"block", &StatementParser::parse_block},
      {"autoescape", &StatementParser::parse_autoescape},
      {"include", &StatementParser::parse_unavailable},
      {"import", &StatementParser::parse_unavailable},
      {"from", &StatementParser::parse_unavailable},
      {"extends", &StatementParser::parse_unavailable},
  };
  const Row* row = std::ranges::find(kRows, tag, &Row::tag);
  if (row == std::end(kRows)) {
    fail_end(tag);
    return;
  }
  tags_.push_back(tag);
  auto statement = (this->*row->parse)();
  tags_.pop_back();
  if (statement && !failed()) {
    body.push_back(std::move(statement));
  }
}

std::unique_ptr<Statement> StatementParser::parse_if() {
  auto node = std::make_unique<IfStatement>(current().line);
  next();
  while (!failed()) {
    ExprPtr test = parse_tuple(false);
    Body body = parse_statements({"elif", "else", "endif"});
    node->branches.emplace_back(std::move(test), std::move(body));
    if (skip_name("elif")) {
      continue;
    }
    if (skip_name("else")) {
      node->otherwise = parse_statements({"endif"}, true);
    } else {
      next();
    }
    break;
  }
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_for() {
  auto node = std::make_unique<ForStatement>(current().line);
  next();
  const std::size_t target_at = at_;
  node->target = parse_target(false);
  if (!expect_name("in")) {
    return nullptr;
  }
  node->iterable = parse_tuple(false);
  if (skip_name("if")) {
    node->test = parse_expression();
    // The filter sees the names in a scope of its own.
    const std::size_t after = at_;
    at_ = target_at;
    node->test_target = parse_target(false);
    at_ = after;
  }
  node->recursive = skip_name("recursive");
  node->body = parse_statements({"endfor", "else"});
  if (skip_name("else")) {
    node->otherwise = parse_statements({"endfor"}, true);
  } else {
    next();
  }
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_set() {
  const std::uint32_t line = current().line;
  next();
  ExprPtr target = parse_target(true);
  if (skip(TokenType::Assign)) {
    auto node = std::make_unique<SetStatement>(line);
    node->target = std::move(target);
    node->value = parse_tuple();
    return node;
  }
  auto node = std::make_unique<SetBlockStatement>(line);
  node->target = std::move(target);
  node->filter = parse_filters(nullptr, false);
  node->body = parse_statements({"endset"}, true);
  return node;
}

void StatementParser::parse_signature(MacroBody& code) {
  if (!expect(TokenType::LParen)) {
    return;
  }
  while (!failed() && !at(TokenType::RParen)) {
    if (!code.parameters.empty() && !expect(TokenType::Comma)) {
      return;
    }
    MacroBody::Parameter parameter;
    parameter.name = parse_target_name();
    if (skip(TokenType::Assign)) {
      parameter.otherwise = parse_expression();
    } else if (!code.parameters.empty() && code.parameters.back().otherwise) {
      error("non-default argument follows default argument");
    }
    code.parameters.push_back(std::move(parameter));
  }
  expect(TokenType::RParen);
}

std::string StatementParser::parse_target_name() {
  const std::string name = current().text;
  if (!at(TokenType::Name)) {
    unexpected("name");
  } else if (is_constant_name(name)) {
    error("can't assign to 'name'");
  }
  next();
  return name;
}

std::unique_ptr<Statement> StatementParser::parse_macro() {
  auto node = std::make_unique<MacroStatement>(current().line);
  next();
  node->code.name = parse_target_name();
  parse_signature(node->code);
  node->code.body = parse_statements({"endmacro"}, true);
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_call_block() {
  auto node = std::make_unique<CallBlockStatement>(current().line);
  next();
  if (at(TokenType::LParen)) {
    parse_signature(node->code);
  }
  node->call = parse_expression();
  if (node->call->kind != ExprKind::Call) {
    error("expected call", node->line);
  }
  node->code.body = parse_statements({"endcall"}, true);
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_filter_block() {
  auto node = std::make_unique<FilterBlockStatement>(current().line);
  next();
  node->filter = parse_filters(nullptr, true);
  node->body = parse_statements({"endfilter"}, true);
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_with() {
  auto node = std::make_unique<WithStatement>(current().line);
  next();
  while (!failed() && !at(TokenType::BlockEnd)) {
    if (!node->assignments.empty() && !expect(TokenType::Comma)) {
      break;
    }
    ExprPtr target = parse_target(false);
    if (!expect(TokenType::Assign)) {
      break;
    }
    node->assignments.emplace_back(std::move(target), parse_expression());
  }
  node->body = parse_statements({"endwith"}, true);
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_print() {
  auto node = std::make_unique<OutputStatement>(current().line);
  next();
  bool first = true;
  while (!failed() && !at(TokenType::BlockEnd)) {
    if (!first && !expect(TokenType::Comma)) {
      break;
    }
    first = false;
    add_expr(node->parts, parse_expression());
  }
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_generation() {
  auto node = std::make_unique<ScopeStatement>(current().line);
  next();
  node->body = parse_statements({"endgeneration"}, true);
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_autoescape() {
  auto node = std::make_unique<ScopeStatement>(current().line);
  next();
  node->isolated = false;
  const ExprPtr on = parse_expression();
  node->body = parse_statements({"endautoescape"}, true);
  if (!is_const(on) || truthy(const_value(on))) {
    return std::make_unique<UnavailableStatement>("autoescape is not supported", node->line);
  }
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_block() {
  auto node = std::make_unique<ScopeStatement>(current().line);
  next();
  const std::string name = current().text;
  expect(TokenType::Name);
  skip_name("scoped");
  skip_name("required");
  node->body = parse_statements({"endblock"}, true);
  skip_name(name);
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_jump() {
  auto node = std::make_unique<JumpStatement>(
      at_name("break") ? StatementKind::Break : StatementKind::Continue, current().line);
  next();
  return node;
}

std::unique_ptr<Statement> StatementParser::parse_unavailable() {
  auto node = std::make_unique<UnavailableStatement>("no loader for this environment specified",
                                                     current().line);
  while (!at(TokenType::BlockEnd) && !at(TokenType::Eof)) {
    next();
  }
  return node;
}

}  // namespace

Program::~Program() {
  body.clear();
  // What contains others was frozen after them.
  while (!constants.empty()) {
    constants.pop_back();
  }
}

Result<Program> parse_program(std::string_view source) {
  auto tokens = tokenize(source);
  if (!tokens) {
    return std::unexpected(std::move(tokens.error()));
  }
  return StatementParser(std::move(*tokens)).run();
}

}  // namespace fairlead::jinja
