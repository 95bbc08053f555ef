#include "engine/text/chat_template.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "io/json.h"
#include "kernels/core/error.h"

namespace tokenmill::text {
namespace {

constexpr jinja::CivilTime kDate = {2026, 7, 30, 0, 0, 0};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

ChatTemplate load(std::string_view source) { return ChatTemplate::load(source, "t.jinja", {{"bos_token", "<s>"}}); }

ChatRequest request(const std::string& messages) {
  ChatRequest out;
  out.messages = io::parse_json(messages, "test");
  return out;
}

// "field: error" of a request that must fail.
std::string fault(std::string_view source, const ChatRequest& chat) {
  const RenderedChat rendered = load(source).render(chat, kDate);
  CHECK_FALSE(rendered.ok());
  CHECK(rendered.text.empty());
  return rendered.error_field + ": " + rendered.error;
}

constexpr std::string_view kPlain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
constexpr std::string_view kParts =
    "{% for m in messages %}{% for part in m.content %}<{{ part.text }}>{% endfor %}{% endfor %}";

TEST_CASE("case 10: chat records render as agreed") {
  const ChatTemplate chat = ChatTemplate::load(read_file(TM_TEST_DATA "/cases/chat.jinja"), "chat.jinja",
                                               {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  std::istringstream lines(read_file(TM_TEST_DATA "/cases/chat_records.jsonl"));
  std::vector<RenderedChat> rendered;
  for (std::string line; std::getline(lines, line);) {
    ChatRequest chat_request;
    chat_request.messages = io::parse_json(line, "chat_records.jsonl").at("messages");
    rendered.push_back(chat.render(chat_request, kDate));
  }
  REQUIRE(rendered.size() == 4);
  CHECK(rendered[0].text == "<s><|turn|>system\nBe brief.<|end|>\n<|turn|>user\nHi  milo<|end|>\n<|turn|>assistant\n");
  CHECK(rendered[1].text == "<s><|turn|>user\none<|end|>\n<|turn|>assistant\n");
  CHECK(rendered[2].error == "chat.jinja:10: unknown role: wizard");
  CHECK(rendered[2].error_field == "messages");
  CHECK(rendered[3].text == "<s><|turn|>user\na<|end|>b<|end|>\n<|turn|>assistant\n");
}

TEST_CASE("special tokens, kwargs, tools and documents are variables of the template") {
  const ChatTemplate chat = load(
      "{{ bos_token }}{{ x }}{{ tools | length if tools else tools }}{{ documents }}{{ add_generation_prompt }}"
      "{{ messages | length }}");
  ChatRequest chat_request = request(R"([{"role": "user", "content": "a"}])");
  CHECK(chat.render(chat_request, kDate).text == "<s>NoneNoneTrue1");
  chat_request.tools = io::parse_json("[{}, {}]", "test");
  chat_request.add_generation_prompt = false;
  chat_request.chat_template_kwargs =
      io::parse_json(R"({"x": [1], "bos_token": "B"})", "test");
  CHECK(chat.render(chat_request, kDate).text == "B[1]2NoneFalse1");
}

TEST_CASE("a request of the wrong shape is refused by naming the field") {
  const auto chat = [](const char* text) { return request(text); };
  CHECK(fault(kPlain, chat("{}")).starts_with("messages: field \"messages\" is of type object"));
  CHECK(fault(kPlain, chat("[]")).starts_with("messages: field \"messages\" is empty"));
  CHECK(fault(kPlain, chat("[1]")).starts_with("messages[0]: field \"messages[0]\" is of type number"));
  CHECK(fault(kPlain, chat(R"([{"content": "x"}])")) == "messages[0].role: field \"messages[0].role\" is missing");
  CHECK(fault(kPlain, chat(R"([{"role": 1}])")).starts_with("messages[0].role: field"));
  CHECK(fault(kPlain, chat(R"([{"role": "user", "content": 5}])")) ==
        "messages[0].content: field \"messages[0].content\" is of type number; it must be a string, null or a list of "
        "text "
        "parts");
  CHECK(fault(kPlain,
              chat(R"([{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image_url"}]}])")) ==
        "messages[1].content[0].type: field \"messages[1].content[0].type\" is \"image_url\"; only \"text\" parts are "
        "supported");
  CHECK(fault(kPlain, chat(R"([{"role": "user", "content": ["a"]}])")).starts_with("messages[0].content[0]: "));
  CHECK(fault(kPlain, chat(R"([{"role": "user", "content": [{"type": "text"}]}])"))
            .starts_with("messages[0].content[0].text: "));
  ChatRequest bad = request(R"([{"role": "user", "content": "a"}])");
  bad.tools = io::parse_json("[1]", "test");
  CHECK(fault(kPlain, bad).starts_with("tools[0]: "));
  bad.tools = {};
  bad.documents = io::parse_json("{}", "test");
  CHECK(fault(kPlain, bad).starts_with("documents: "));
  bad.documents = {};
  bad.chat_template_kwargs = io::parse_json("[]", "test");
  CHECK(fault(kPlain, bad).starts_with("chat_template_kwargs: "));
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template"}) {
    CAPTURE(name);
    bad.chat_template_kwargs = io::JsonValue::object({{name, {}}});
    CHECK(fault(kPlain, bad).starts_with("chat_template_kwargs." + std::string(name) + ": "));
  }
  bad.chat_template_kwargs = io::parse_json(R"({"reasoning_effort": "low"})", "test");
  CHECK(load("{{ reasoning_effort }}").render(bad, kDate).text == "low");
  bad.reasoning_effort = "high";
  CHECK(fault("{{ reasoning_effort }}", bad).starts_with("chat_template_kwargs.reasoning_effort: "));
}

TEST_CASE("a template that fails for want of a message's text names the message") {
  const std::string_view adds = "{% for m in messages %}{{ '[' + m.content + ']' }}{% endfor %}";
  const std::string end = ", and the chat template cannot do without (t.jinja:1: ";
  const std::string missing = R"([{"role": "user", "content": "a"}, {"role": "user"}])";
  CHECK(fault(adds, request(missing))
            .starts_with("messages[1].content: field \"messages[1].content\" is missing or null" + end +
                         "'dict object' has "));
  CHECK(fault(adds, request(R"([{"role": "user", "content": null}])")).starts_with("messages[0].content: field"));
  CHECK(load(kPlain).render(request(missing), kDate).text == "[user]a[user]");  // as transformers renders it
  const std::string_view refuses = "{{ raise_exception('no') }}";               // whatever the messages say
  CHECK(fault(refuses, request(missing)) == "messages: t.jinja:1: no");
}

TEST_CASE("text parts are joined for templates that print the content and passed to those that loop over it") {
  const std::string messages =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  CHECK(load(kPlain).render(request(messages), kDate).text == "[user]a\nb");
  CHECK(load(kParts).render(request(messages), kDate).text == "<a><b>");
  CHECK(load(kPlain).render(request(R"([{"role": "user", "content": null}])"), kDate).text == "[user]None");
  CHECK(load(kPlain).render(request(R"([{"role": "user"}])"), kDate).text == "[user]");
}

TEST_CASE("the content format is seen through set, slices, filters and item access") {
  const auto format = [](std::string_view source) { return load(source).content_format(); };
  CHECK(format(kPlain) == ContentFormat::kString);
  CHECK(format(kParts) == ContentFormat::kParts);
  CHECK(format("{% set rest = messages[1:] %}{% set loop_messages = rest %}{% for m in loop_messages %}{% if x %}"
               "{% for c in m['content'] | selectattr('type') %}{% endfor %}{% endif %}{% endfor %}") ==
        ContentFormat::kParts);
  CHECK(
      format("{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}"
             "{% endfor %}") == ContentFormat::kString);
  CHECK(format("{% for m in messages %}{% for t in m.tool_calls %}{% endfor %}{% endfor %}") == ContentFormat::kString);
  CHECK(format("{% for m in other %}{% for c in m.content %}{% endfor %}{% endfor %}") == ContentFormat::kString);
}

TEST_CASE("tool call arguments given as JSON text become objects") {
  const ChatTemplate chat = load(
      "{% for m in messages %}{% if m.tool_calls is defined %}{{ m.tool_calls[0].function.arguments | tojson }}"
      "{% else %}-{% endif %}{% endfor %}");
  const auto text = [&](const std::string& arguments) {
    return chat.render(
        request(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f")" + arguments + "}}]}]"), kDate);
  };
  CHECK(text(R"(, "arguments": "{\"b\": 1.50, \"a\": [2]}")").text == R"({"b": 1.5, "a": [2]})");
  CHECK(text(R"(, "arguments": {"b": 1})").text == R"({"b": 1})");
  CHECK(text(R"(, "arguments": "")").text == "{}");
  CHECK(text("").text == "{}");
  CHECK(text(R"(, "arguments": "{")").error_field == "messages[0].tool_calls[0].function.arguments");
  CHECK(chat.render(request(R"([{"role": "assistant", "tool_calls": []}])"), kDate).text == "-");
}

TEST_CASE("continue_final_message cuts the prompt behind the last message's text") {
  constexpr std::string_view kTurns =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}{% if add_generation_prompt %}<a>{% "
      "endif "
      "%}";
  ChatRequest chat_request =
      request(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "Sure, "}])");
  chat_request.continue_final_message = true;
  CHECK(fault(kTurns, chat_request).starts_with("continue_final_message: "));
  chat_request.add_generation_prompt = false;
  CHECK(load(kTurns).render(chat_request, kDate).text == "<user>q</>\n<assistant>Sure,");
  CHECK(load(kPlain).render(chat_request, kDate).text == "[user]q[assistant]Sure, ");
  CHECK(fault("{{ messages[0].content }}", chat_request).starts_with("continue_final_message: "));
  CHECK(fault("{{ messages[0].role }}", chat_request).starts_with("continue_final_message: "));
  chat_request.messages = io::parse_json(R"([{"role": "assistant"}])", "test");
  CHECK(fault(kPlain, chat_request).starts_with("messages[0].content: "));
  chat_request.messages = io::parse_json(
      R"([{"role": "a", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}])", "test");
  CHECK(load(kPlain).render(chat_request, kDate).text == "[a]x\ny");
  CHECK(load(kParts).render(chat_request, kDate).text == "<x><y");
}

}  // namespace
}  // namespace tokenmill::text
