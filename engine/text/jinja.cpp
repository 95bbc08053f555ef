#include "engine/text/jinja.h"

#include <fmt/format.h>

#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_parser.h"
#include "io/utf8.h"
#include "kernels/core/error.h"

namespace tokenmill::jinja {

Template Template::parse(std::string_view source, std::string name) {
  constexpr size_t kMaxSourceBytes = size_t{4} << 20;
  if (source.size() > kMaxSourceBytes)
    throw Error(ErrorKind::kConfig, "{}: the template has {} bytes; at most {} are allowed", name, source.size(),
                kMaxSourceBytes);
  if (const size_t bad = io::find_invalid_utf8(source); bad != std::string_view::npos)
    throw Error(ErrorKind::kConfig, "{}: the template is not valid UTF-8 at byte {}", name, bad);
  Template out;
  out.name_ = std::move(name);
  Parser parser(tokenize(source, out.name_), out.name_);
  out.root_ = std::make_shared<const TemplateNode>(parser.parse());
  return out;
}

bool Template::reads(std::string_view name) const { return root_->names.contains(name); }

RenderResult Template::render(const Variables& variables, const CivilTime& now, const RenderLimits& limits) const {
  RenderResult result;
  Runtime runtime(limits, now);
  try {
    Interpreter interpreter(runtime, variables);
    try {
      result.text = interpreter.run(*root_);
    } catch (const RenderError& error) {
      result.error = fmt::format("{}:{}: {}", name_, interpreter.line(), error.what());
    }
  } catch (const RenderError& error) {
    result.error = fmt::format("{}: {}", name_, error.what());
  }
  return result;
}

}  // namespace tokenmill::jinja
