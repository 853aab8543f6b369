#include "jinja/template.hpp"

#include "jinja/ast.hpp"
#include "jinja/evaluator.hpp"
#include "jinja/parser.hpp"
#include "jinja/resolver.hpp"

namespace fairlead::jinja {

Template::Template(std::string source, Program program)
    : source_(std::move(source)), program_(std::make_unique<const Program>(std::move(program))) {}

Template::~Template() = default;

Result<std::shared_ptr<const Template>> Template::parse(std::string source) {
  if (source.size() > kMaxSourceBytes) {
    return fail(ErrorCode::InvalidRequest,
                "the template has more than " + std::to_string(kMaxSourceBytes) + " bytes");
  }
  auto program = parse_program(source);
  if (!program) {
    return std::unexpected(std::move(program.error()));
  }
  if (auto resolved = resolve_program(*program); !resolved) {
    return std::unexpected(std::move(resolved.error()));
  }
  return std::shared_ptr<const Template>(new Template(std::move(source), std::move(*program)));
}

Result<std::string> Template::render(const Value& context, const Options& options) const {
  if (context.kind() != Kind::Dict) {
    return fail(ErrorCode::InvalidRequest, "the template's context must be an object", "context");
  }
  Runtime runtime(options.limits, options.now, options.stop);
  std::string out;
  // The evaluator's values are gone before the runtime empties the namespaces.
  const bool done = Evaluator(runtime, *program_, as<DictObject>(context).store()).run(out);
  if (!done) {
    return fail(ErrorCode::InvalidRequest, runtime.error());
  }
  return out;
}

}  // namespace fairlead::jinja
