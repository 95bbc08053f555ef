#include "app/chat.h"

#include "io/file.h"

namespace tokenmill::app {

constexpr int64_t kMaxTemplateBytes = 4 << 20;

std::optional<text::ChatTemplate> load_chat_template(const TokenizerSource& source, const std::string& file) {
  if (!file.empty())
    return text::ChatTemplate::load(io::read_file(file, kMaxTemplateBytes), file, source.special_tokens);
  for (const text::ChatTemplateSource& found : source.chat_templates)
    if (found.name == "default")
      return text::ChatTemplate::load(found.text, "chat template of the model", source.special_tokens);
  return std::nullopt;
}

rows::ChatRenderer make_chat_renderer(const text::ChatTemplate& chat_template, const std::string& date) {
  return [&chat_template, day = jinja::parse_civil_time(date)](const text::ChatRequest& chat) {
    text::RenderedChat rendered = chat_template.render(chat, day);
    if (!rendered.ok()) throw rows::BadRow{"invalid_request", rendered.error_field, rendered.error};
    return std::move(rendered.text);
  };
}

}  // namespace tokenmill::app
