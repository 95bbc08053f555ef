#include "app/chat.h"

#include <map>
#include <memory>
#include <mutex>

#include "io/file.h"
#include "kernels/core/error.h"

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

namespace {

/// Templates that rows bring along, parsed. Rows of a job mostly share one.
class RowTemplates {
 public:
  explicit RowTemplates(std::vector<std::pair<std::string, std::string>> special_tokens)
      : special_tokens_(std::move(special_tokens)) {}

  std::shared_ptr<const text::ChatTemplate> get(const std::string& source) {
    const std::lock_guard lock(mutex_);
    if (const auto found = parsed_.find(source); found != parsed_.end()) return found->second;
    auto fresh =
        std::make_shared<const text::ChatTemplate>(text::ChatTemplate::load(source, "chat_template", special_tokens_));
    if (parsed_.size() >= kMaxTemplates) parsed_.clear();
    parsed_.emplace(source, fresh);
    return fresh;
  }

 private:
  static constexpr size_t kMaxTemplates = 32;
  std::vector<std::pair<std::string, std::string>> special_tokens_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const text::ChatTemplate>> parsed_;
};

std::string render(const text::ChatTemplate& chat_template, const text::ChatRequest& chat,
                   const jinja::CivilTime& day) {
  text::RenderedChat rendered = chat_template.render(chat, day);
  if (!rendered.ok()) throw rows::BadRow{"invalid_request", rendered.error_field, rendered.error};
  return std::move(rendered.text);
}

}  // namespace

rows::ChatRenderer make_chat_renderer(const text::ChatTemplate* job_template, std::string missing,
                                      std::vector<std::pair<std::string, std::string>> special_tokens,
                                      const std::string& date) {
  return [job_template, missing = std::move(missing), day = jinja::parse_civil_time(date),
          templates = std::make_shared<RowTemplates>(std::move(special_tokens))](const text::ChatRequest& chat,
                                                                                 const std::string& own) {
    if (own.empty() && job_template == nullptr) throw rows::BadRow{"invalid_request", "messages", missing};
    if (own.empty()) return render(*job_template, chat, day);
    std::shared_ptr<const text::ChatTemplate> parsed;
    try {
      parsed = templates->get(own);
    } catch (const Error& error) {
      throw rows::BadRow{"invalid_request", "chat_template", error.what()};
    }
    return render(*parsed, chat, day);
  };
}

}  // namespace tokenmill::app
