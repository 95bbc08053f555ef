#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"

/// The template language of checkpoints: Jinja as Hugging Face's chat templates set it up (trim_blocks, lstrip_blocks,
/// no HTML escaping, immutable sandbox, loop controls, generation blocks). README.md lists what is understood.
namespace tokenmill::jinja {

struct TemplateNode;

/// What `strftime_now` sees: local time without a zone. Given by the caller, never the clock.
struct CivilTime {
  int year = 1970;
  int month = 1;  ///< 1 to 12
  int day = 1;    ///< 1 to 31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

/// Parses "2026-07-30" or "2026-07-30T13:05:00". Throws Error(kConfig) naming what is allowed.
CivilTime parse_civil_time(std::string_view text);

/// What one rendering may use; a template that needs more ends with an error. Memory stays below a few times
/// max_work * 8 bytes.
struct RenderLimits {
  int64_t max_work = 50'000'000;                 ///< nodes evaluated plus bytes of text and lists made / 8
  int64_t max_output_bytes = int64_t{64} << 20;  ///< of the prompt, and of any captured block
};

/// One variable of a rendering.
using Variables = std::vector<std::pair<std::string, io::JsonValue>>;

struct RenderResult {
  std::string text;   ///< empty when error is not
  std::string error;  ///< "NAME:LINE: what went wrong"; empty on success
};

/// A parsed template. Immutable: any number of threads may render one template at once.
class Template {
 public:
  /// Parses `source` (UTF-8). `name` ("chat_template.jinja") goes into every message. Throws Error(kConfig) naming the
  /// construct, the template and the line for anything that is not understood.
  static Template parse(std::string_view source, std::string name);

  /// Renders with these variables; of a repeated name the last one counts. Errors of the template or its input come
  /// back as a value: they cost one row.
  RenderResult render(const Variables& variables, const CivilTime& now, const RenderLimits& limits = {}) const;

  const std::string& name() const { return name_; }
  const TemplateNode& root() const { return *root_; }

  /// Whether some expression has this name, be it that of a variable given to render() or one the template makes.
  bool reads(std::string_view name) const;

 private:
  std::string name_;
  std::shared_ptr<const TemplateNode> root_;
};

}  // namespace tokenmill::jinja
