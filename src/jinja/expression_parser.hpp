#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.hpp"
#include "jinja/lexer.hpp"

namespace fairlead::jinja {

/// The expression half of the parser: tokens, errors and expressions, as Jinja's parser has them.
/// After the first error the results are placeholders and every loop ends.
class ExpressionParser {
 protected:
  /// Names of tags.
  using Names = std::initializer_list<std::string_view>;

  /// Begins at the first token.
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool at(TokenType type) const { return current().type == type; }
  bool failed() const { return error_.has_value(); }
  void error(std::string message) { error(std::move(message), current().line); }
  static std::uint16_t depth_of(const ExprPtr& node) { return node ? node->depth : 0; }
  ExprPtr broken() { return std::make_unique<ConstExpr>(Value(), current().line); }

  /// Nesting of the parser itself is bounded by these.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.nested_ > kMaxNested) {
        parser_.error("the expression is nested too deeply");
      }
    }
    ~Nested() { --parser_.nested_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

  /// Nesting that CPython would refuse to compile is refused here too.
  static constexpr int kMaxNested = 140;
  /// Deepest expression, chains included.
  static constexpr std::uint16_t kMaxDepth = 200;

  bool at_name(std::string_view name) const;
  bool at_any_name(Names names) const;
  void next();
  bool skip(TokenType type);
  bool skip_name(std::string_view name);
  bool expect(TokenType type);
  bool expect_name(std::string_view name);
  void unexpected(const std::string& expected);
  void error(std::string message, std::uint32_t line);
  ExprPtr finish(ExprPtr node, std::uint16_t inner);
  static std::uint16_t depth_of(const std::vector<ExprPtr>& nodes);
  static std::uint16_t depth_of(const ArgExprs& args);
  ExprPtr constant(Value value, std::uint32_t line);
  static bool is_const(const ExprPtr& node);
  static const Value& const_value(const ExprPtr& node);
  ExprPtr sequence(ExprKind kind, std::vector<ExprPtr> items, std::uint32_t line);
  static bool is_constant_name(std::string_view name);
  /// Items of a tuple that is not closed by a bracket of its own.
  struct CommaList {
    std::vector<ExprPtr> items;
    std::optional<std::uint32_t> last_comma;  // its line; without one it is no tuple
  };
  template <typename ParseItem>
  CommaList parse_comma_list(ParseItem parse_item);
  ExprPtr missing_expression();
  ExprPtr parse_target(bool attributes);
  ExprPtr parse_target_item(bool attributes);
  bool is_tuple_end() const;
  ExprPtr parse_tuple(bool conditional = true, bool parentheses = false);
  ExprPtr parse_expression(bool conditional = true);
  ExprPtr parse_conditional();
  ExprPtr binary(ExprKind kind, Arithmetic op, ExprPtr left, ExprPtr right, std::uint32_t line);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr unary(ExprKind kind, ExprPtr operand, std::uint32_t line);
  std::optional<CompareOp> compare_operator();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary();
  static Value integer_value(const std::string& text);
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filter_expr(ExprPtr node);
  ExprPtr get_item(ExprPtr object, ExprPtr key, std::uint32_t line);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_subscribed();
  ArgExprs parse_args();
  ExprPtr parse_call(ExprPtr callee);
  std::string parse_dotted_name();
  ExprPtr parse_filters(ExprPtr node, bool inline_start);
  bool at_test_argument() const;
  ExprPtr parse_test(ExprPtr node);

  const std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nested_ = 0;
  Program program_;
  std::optional<Error> error_;
};

}  // namespace fairlead::jinja
