// Whole templates and conversations against transformers (scripts/fixtures/chat_templates.py).
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "engine/models/tokenizer_source.h"
#include "engine/text/chat_template.h"
#include "io/file.h"
#include "io/json.h"

namespace tokenmill::text {
namespace {

constexpr const char* kFolder = TM_TEST_DATA "/chat_templates/";

std::vector<std::pair<std::string, std::string>> special_tokens(const io::JsonValue& file) {
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const auto& [name, text] : file.at("special_tokens").members()) tokens.emplace_back(name, text.as_string());
  return tokens;
}

ChatRequest make_request(const io::JsonValue& test_case) {
  ChatRequest request;
  request.messages = test_case.at("messages");
  request.chat_template_kwargs = io::JsonValue::object();
  for (const auto& [name, value] : test_case.at("arguments").members()) {
    if (name == "tools")
      request.tools = value;
    else if (name == "documents")
      request.documents = value;
    else if (name == "add_generation_prompt")
      request.add_generation_prompt = value.as_bool();
    else if (name == "continue_final_message")
      request.continue_final_message = value.as_bool();
    else
      request.chat_template_kwargs.members().emplace_back(name, value);
  }
  return request;
}

// The message behind "TemplateError: ", which must be part of ours.
std::string message_of(const std::string& error) { return error.substr(error.find(": ") + 2); }

void check_case(const ChatTemplate& chat, const io::JsonValue& test_case, const jinja::CivilTime& now) {
  CAPTURE(chat.name());
  CAPTURE(test_case.at("name").as_string());
  const RenderedChat rendered = chat.render(make_request(test_case), now);
  if (const io::JsonValue* text = test_case.find("text")) {
    CHECK(rendered.error == "");
    CHECK(rendered.text == text->as_string());
    return;
  }
  CAPTURE(rendered.error);
  CHECK(rendered.error.find(message_of(test_case.at("error").as_string())) != std::string::npos);
}

TEST_CASE("templates in the styles of well-known checkpoints render as transformers renders them") {
  const io::JsonValue file = io::parse_json_file(std::string(kFolder) + "cases.json");
  const jinja::CivilTime now = jinja::parse_civil_time(file.at("now").as_string());
  std::map<std::string, ChatTemplate> templates;
  for (const io::JsonValue& test_case : file.at("cases").items()) {
    const std::string& name = test_case.at("template").as_string();
    auto found = templates.find(name);
    if (found == templates.end()) {
      const std::string source = io::read_file(kFolder + name + ".jinja", 1 << 20);
      found = templates.emplace(name, ChatTemplate::load(source, name + ".jinja", special_tokens(file))).first;
    }
    check_case(found->second, test_case, now);
  }
  CHECK(templates.size() == 13);
  CHECK(templates.at("gemma").content_format() == ContentFormat::kParts);
  CHECK(templates.at("parts").content_format() == ContentFormat::kParts);
  CHECK(templates.at("llama3").content_format() == ContentFormat::kString);
}

TEST_CASE("the template in SmolLM2's GGUF file renders as transformers renders it") {
  const char* path = std::getenv("TOKENMILL_SMOLLM2");
  if (path == nullptr) {
    MESSAGE("skipped: TOKENMILL_SMOLLM2 does not name SmolLM2-135M-Instruct.Q4_1.gguf");
    return;
  }
  const auto sources = load_tokenizer(path).chat_templates;
  REQUIRE(sources.size() == 1);
  const io::JsonValue file = io::parse_json_file(std::string(kFolder) + "smollm2.json");
  const ChatTemplate chat = ChatTemplate::load(sources[0].text, "tokenizer.chat_template", special_tokens(file));
  REQUIRE(file.at("cases").items().size() == 10);
  for (const io::JsonValue& test_case : file.at("cases").items())
    check_case(chat, test_case, jinja::parse_civil_time(file.at("now").as_string()));
}

}  // namespace
}  // namespace tokenmill::text
