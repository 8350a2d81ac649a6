/*
 * A forge in C, as small as it gets: what tests/abi.rs compiles with cc against
 * the header and runs.
 *
 *   host layout                    prints every size and offset of the header
 *   host run PLUGIN DIR SCENE      loads the plugin and plays one scene:
 *     acquire, list, denied, fork, short, threads, query, contract, many
 *
 * DIR is for the ledger, and has a bare repository "r.git". It is the host's
 * only one, in whose tracker every issue but "closed" is open. It prints what the plugin
 * writes, and "status exit" of every call. Exit 0: the scene went as it should.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "git_claim_plugin.h"

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* -- layout ------------------------------------------------------------- */

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))

static void layout(void)
{
    SIZE(gclaim_str);
    FIELD(gclaim_str, ptr);
    FIELD(gclaim_str, len);
    SIZE(gclaim_sink);
    FIELD(gclaim_sink, ctx);
    FIELD(gclaim_sink, write);
    SIZE(gclaim_host);
    FIELD(gclaim_host, size);
    FIELD(gclaim_host, abi_minor);
    FIELD(gclaim_host, ctx);
    FIELD(gclaim_host, log);
    FIELD(gclaim_host, now);
    FIELD(gclaim_host, resolve_repo);
    FIELD(gclaim_host, authorize);
    FIELD(gclaim_host, write);
    FIELD(gclaim_host, read);
    FIELD(gclaim_host, cancelled);
    FIELD(gclaim_host, repo_path);
    FIELD(gclaim_host, resolve_issue);
    FIELD(gclaim_host, event);
    SIZE(gclaim_config);
    FIELD(gclaim_config, size);
    FIELD(gclaim_config, flags);
    FIELD(gclaim_config, settings);
    SIZE(gclaim_request);
    FIELD(gclaim_request, size);
    FIELD(gclaim_request, flags);
    FIELD(gclaim_request, call);
    FIELD(gclaim_request, command);
    FIELD(gclaim_request, user);
    FIELD(gclaim_request, key);
    FIELD(gclaim_request, peer);
    FIELD(gclaim_request, deadline_ms);
    FIELD(gclaim_request, reserved);
    SIZE(gclaim_query);
    FIELD(gclaim_query, size);
    FIELD(gclaim_query, flags);
    FIELD(gclaim_query, call);
    FIELD(gclaim_query, name);
    FIELD(gclaim_query, params);
    FIELD(gclaim_query, user);
    FIELD(gclaim_query, deadline_ms);
    FIELD(gclaim_query, reserved);
    SIZE(gclaim_plugin);
    FIELD(gclaim_plugin, size);
    FIELD(gclaim_plugin, abi_minor);
    FIELD(gclaim_plugin, describe);
    FIELD(gclaim_plugin, open);
    FIELD(gclaim_plugin, exec);
    FIELD(gclaim_plugin, query);
    FIELD(gclaim_plugin, close);
}

/* -- the host's side ------------------------------------------------------ */

/* What the plugin wrote, NUL-terminated; one a call or sink. */
struct output {
    char text[16384];
    size_t len;
};

/* One request: what its callbacks are given. */
struct call {
    struct output out, err;
    uint32_t allowed; /* the highest access that authorize grants */
};

static int32_t append(void *ctx, const void *data, size_t len)
{
    struct output *output = ctx;
    if (len > sizeof output->text - 1 - output->len)
        return GCLAIM_EIO;
    memcpy(output->text + output->len, data, len);
    output->len += len;
    output->text[output->len] = 0;
    return GCLAIM_OK;
}

static int same(const char *data, size_t len, const char *text)
{
    return len == strlen(text) && memcmp(data, text, len) == 0;
}

static void host_log(void *ctx, uint32_t level, const char *msg, size_t len)
{
    (void)ctx;
    fprintf(stderr, "log %u: %.*s\n", level, (int)len, msg);
}

static int32_t host_resolve_repo(void *call, const char *name, size_t len, const gclaim_sink *id)
{
    (void)call;
    if (!same(name, len, "r") && !same(name, len, "r.git"))
        return GCLAIM_ENOTFOUND;
    return id->write(id->ctx, "r.git", 5);
}

static int32_t host_authorize(void *ctx, const char *repo_id, size_t len, uint32_t access)
{
    struct call *call = ctx;
    CHECK(same(repo_id, len, "r.git"));
    return access <= call->allowed ? GCLAIM_ALLOW : 0;
}

static int32_t host_write(void *ctx, uint32_t stream, const void *data, size_t len)
{
    struct call *call = ctx;
    CHECK(stream == GCLAIM_STDOUT || stream == GCLAIM_STDERR);
    return append(stream == GCLAIM_STDOUT ? &call->out : &call->err, data, len);
}

static const char *directory;

static int32_t host_repo_path(void *call, const char *repo_id, size_t len, const gclaim_sink *path)
{
    (void)call;
    CHECK(same(repo_id, len, "r.git"));
    CHECK(path->write(path->ctx, directory, strlen(directory)) == GCLAIM_OK);
    return path->write(path->ctx, "/r.git", 6);
}

static int32_t host_resolve_issue(void *call, const char *repo_id, size_t repo_len,
                                  const char *issue, size_t issue_len, const gclaim_sink *json)
{
    char text[256];
    int len;
    (void)call;
    CHECK(same(repo_id, repo_len, "r.git"));
    if (same(issue, issue_len, "unknown"))
        return GCLAIM_ENOTFOUND;
    len = snprintf(text, sizeof text, "{\"id\":\"%.*s\",\"state\":\"%s\",\"title\":\"From C\"}",
                   (int)issue_len, issue, same(issue, issue_len, "closed") ? "closed" : "open");
    return json->write(json->ctx, text, (size_t)len);
}

static const gclaim_host HOST = {
    .size = sizeof(gclaim_host),
    .abi_minor = GCLAIM_ABI_MINOR,
    .log = host_log,
    .resolve_repo = host_resolve_repo,
    .authorize = host_authorize,
    .write = host_write,
    .resolve_issue = host_resolve_issue,
};

/* -- calls ------------------------------------------------------------------ */

static gclaim_str str(const char *text)
{
    gclaim_str s = {text, strlen(text)};
    return s;
}

static const gclaim_plugin *load(const char *file)
{
    gclaim_entry_fn entry;
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&entry = dlsym(library, GCLAIM_ENTRY);
    CHECK(entry);
    return entry();
}

static gclaim_instance *open_ledger(const gclaim_plugin *plugin, const gclaim_host *host,
                                    const char *dir)
{
    char settings[4096];
    struct output why = {{0}, 0};
    gclaim_sink sink = {&why, append};
    gclaim_config config = {.size = sizeof config};
    gclaim_instance *instance = NULL;
    int32_t status;
    snprintf(settings, sizeof settings, "{\"ledger\":\"%s/collab.db\"}", dir);
    config.settings = str(settings);
    status = plugin->open(host, &config, &instance, &sink);
    if (status != GCLAIM_OK)
        fprintf(stderr, "open: %d %s\n", status, why.text);
    CHECK(status == GCLAIM_OK && instance);
    return instance;
}

/* Longer than a call takes on any machine, under valgrind too. */
#define PATIENCE_MS 600000

static int32_t exec_as(const gclaim_plugin *plugin, gclaim_instance *instance, const char *user,
                       const char *command, uint32_t allowed, struct call *call,
                       uint32_t *exit_code)
{
    gclaim_request request = {.size = sizeof request};
    memset(call, 0, sizeof *call);
    call->allowed = allowed;
    request.call = call;
    request.command = str(command);
    request.user = str(user);
    request.deadline_ms = PATIENCE_MS;
    *exit_code = 255;
    return plugin->exec(instance, &request, exit_code);
}

/* Runs a command that the plugin must answer with `wanted`, and shows it. */
static void must(const gclaim_plugin *plugin, gclaim_instance *instance, const char *user,
                 const char *command, uint32_t allowed, uint32_t wanted)
{
    struct call call;
    uint32_t exit_code;
    int32_t status = exec_as(plugin, instance, user, command, allowed, &call, &exit_code);
    printf("%s: %s\n%d %u\n%s%s", user, command, status, exit_code, call.out.text, call.err.text);
    CHECK(status == GCLAIM_OK);
    CHECK(exit_code == wanted);
}

/* -- scenes ----------------------------------------------------------------- */

static void scene_acquire(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    must(plugin, instance, "ann", "collab-lease acquire r 42 --session s1", GCLAIM_WRITE, 0);
    must(plugin, instance, "bob", "collab-lease acquire r.git 42 --session s2", GCLAIM_WRITE, 4);
    must(plugin, instance, "ann", "collab-lease release r 42 --session s1", GCLAIM_WRITE, 0);
    must(plugin, instance, "bob", "collab-lease acquire r.git 42 --session s2", GCLAIM_WRITE, 0);
    must(plugin, instance, "bob", "collab-lease acquire r closed", GCLAIM_WRITE, 1);
    must(plugin, instance, "bob", "collab-lease acquire r unknown", GCLAIM_WRITE, 1);
}

static void scene_list(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    must(plugin, instance, "ann", "collab-lease acquire r 1 --ttl 60", GCLAIM_WRITE, 0);
    must(plugin, instance, "ann", "collab-lease acquire r 2", GCLAIM_WRITE, 0);
    must(plugin, instance, "bob", "collab-lease list r", GCLAIM_READ, 0);
}

/* Nobody may, and no such repository: the same answer. */
static void scene_denied(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    must(plugin, instance, "eve", "collab-lease list r", 0, 1);
    must(plugin, instance, "eve", "collab-lease list nowhere", GCLAIM_ADMIN, 1);
}

/* An instance does not work in a forked child, and goes on in the parent. */
static void scene_fork(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct call call;
        uint32_t exit_code;
        CHECK(exec_as(plugin, instance, "ann", "collab-lease list r", GCLAIM_READ, &call,
                      &exit_code) == GCLAIM_EFORKED);
        CHECK(call.out.len == 0 && call.err.len == 0);
        plugin->close(instance);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must(plugin, instance, "ann", "collab-lease acquire r 42", GCLAIM_WRITE, 0);
}

/* Asks a question and shows the answer. */
static int32_t ask(const gclaim_plugin *plugin, gclaim_instance *instance, const char *name,
                   const char *params, const char *user, uint32_t allowed)
{
    struct call call = {.allowed = allowed};
    struct output answer = {{0}, 0};
    gclaim_sink sink = {&answer, append};
    gclaim_query query = {.size = sizeof query, .call = &call};
    int32_t status;
    query.name = str(name);
    query.params = str(params);
    query.user = str(user);
    query.deadline_ms = PATIENCE_MS;
    status = plugin->query(instance, &query, &sink);
    CHECK(call.out.len == 0 && call.err.len == 0);
    CHECK((status == GCLAIM_OK) == (answer.len > 0));
    if (answer.len)
        printf("%s\n", answer.text);
    return status;
}

/* What a web page asks, for somebody who may read and for others. */
static void scene_query(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    gclaim_query query = {.size = sizeof query};
    struct output none = {{0}, 0};
    gclaim_sink sink = {&none, append};

    must(plugin, instance, "ann", "collab-lease acquire r 1 --note busy", GCLAIM_WRITE, 0);
    must(plugin, instance, "ann", "collab-lease release r 1", GCLAIM_WRITE, 0);
    must(plugin, instance, "bob", "collab-lease acquire r 1 --ttl 60", GCLAIM_WRITE, 0);
    CHECK(ask(plugin, instance, "claims", "{\"repo\":\"r\"}", "", GCLAIM_READ) == GCLAIM_OK);
    CHECK(ask(plugin, instance, "claim", "{\"repo\":\"r\",\"issue\":\"1\"}", "bob",
              GCLAIM_READ) == GCLAIM_OK);

    /* No right, no repository, no issue, no such question: one answer. */
    CHECK(ask(plugin, instance, "claims", "{\"repo\":\"r\"}", "ann", 0) == GCLAIM_ENOTFOUND);
    CHECK(ask(plugin, instance, "claims", "{\"repo\":\"-x\"}", "ann", GCLAIM_ADMIN) ==
          GCLAIM_ENOTFOUND);
    CHECK(ask(plugin, instance, "claim", "{\"repo\":\"x\",\"issue\":\"1\"}", "ann",
              GCLAIM_ADMIN) == GCLAIM_ENOTFOUND);
    CHECK(ask(plugin, instance, "claim", "{\"repo\":\"r\",\"issue\":\"unknown\"}", "ann",
              GCLAIM_READ) == GCLAIM_ENOTFOUND);
    CHECK(ask(plugin, instance, "surprise", "{}", "ann", GCLAIM_READ) == GCLAIM_ENOTFOUND);

    /* A broken contract. */
    CHECK(ask(plugin, instance, "claims", "{}", "ann", GCLAIM_READ) == GCLAIM_EINVAL);
    CHECK(ask(plugin, instance, "claims", "{\"repo\":\"r\",\"x\":1}", "ann", GCLAIM_READ) ==
          GCLAIM_EINVAL);
    CHECK(ask(plugin, instance, "claims", "{\"repo\":\"r\"}", "a\nb", GCLAIM_READ) ==
          GCLAIM_EINVAL);
    CHECK(plugin->query(instance, NULL, &sink) == GCLAIM_EINVAL);
    CHECK(plugin->query(instance, &query, NULL) == GCLAIM_EINVAL);
    query.flags = 1;
    CHECK(plugin->query(instance, &query, &sink) == GCLAIM_EINVAL);
    CHECK(none.len == 0);
}

struct worker {
    const gclaim_plugin *plugin;
    gclaim_instance *instance;
    int number;
    int won;
};

#define ROUNDS 25

/* Four threads share one instance and want the same issues. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    for (int round = 0; round < ROUNDS; round++) {
        struct call call;
        uint32_t exit_code;
        char user[16], command[80];
        snprintf(user, sizeof user, "user%d", worker->number);
        snprintf(command, sizeof command, "collab-lease acquire r issue%d", round);
        CHECK(exec_as(worker->plugin, worker->instance, user, command, GCLAIM_WRITE, &call,
                      &exit_code) == GCLAIM_OK);
        CHECK(exit_code == 0 || exit_code == 4);
        worker->won += exit_code == 0;
    }
    return NULL;
}

static void scene_threads(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    pthread_t threads[4];
    struct worker workers[4];
    int won = 0;
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){plugin, instance, i, 0};
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        won += workers[i].won;
    }
    printf("won %d of %d\n", won, ROUNDS);
    CHECK(won == ROUNDS);
}

/* What breaks the contract is answered, not obeyed. */
static void scene_contract(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    struct call call = {.allowed = GCLAIM_ADMIN};
    struct output text = {{0}, 0};
    gclaim_sink sink = {&text, append};
    uint32_t exit_code = 255;
    gclaim_instance *none = NULL;
    gclaim_config config = {.size = sizeof config, .settings = str("{\"surprise\":1}")};
    gclaim_request request = {.size = sizeof request, .call = &call};
    request.command = str("collab-lease list r");
    request.user = str("ann");

    CHECK(plugin->describe(&sink) == GCLAIM_OK);
    CHECK(text.len > 0 && text.text[0] == '{');
    CHECK(plugin->open(&HOST, &config, &none, &sink) == GCLAIM_ECONFIG && !none);
    config.settings = str("{}");
    config.flags = 1;
    CHECK(plugin->open(&HOST, &config, &none, &sink) == GCLAIM_EINVAL && !none);

    CHECK(plugin->exec(NULL, &request, &exit_code) == GCLAIM_EINVAL);
    CHECK(plugin->exec(instance, NULL, &exit_code) == GCLAIM_EINVAL);
    CHECK(plugin->exec(instance, &request, NULL) == GCLAIM_EINVAL);
    request.flags = 1u << 31;
    CHECK(plugin->exec(instance, &request, &exit_code) == GCLAIM_EINVAL);
    request.flags = 0;
    request.user = str("");
    CHECK(plugin->exec(instance, &request, &exit_code) == GCLAIM_EINVAL);
    CHECK(call.out.len == 0);

    /* The host's own requests are not a user's to make. */
    must(plugin, instance, "ann", "collab-lease rename r other", GCLAIM_ADMIN, 1);
    plugin->close(NULL);
}

/* A host as an older build has it: it ends before `size`, and what lies behind
 * is no function. */
static gclaim_host cut(size_t size)
{
    gclaim_host host = HOST;
    host.repo_path = host_repo_path;
    host.size = (uint32_t)size;
    memset((char *)&host + size, 0x55, sizeof host - size);
    return host;
}

static void scene_short(const gclaim_plugin *plugin)
{
    /* Issues are looked for in the repository, which has none: any will do. */
    gclaim_host host = cut(offsetof(gclaim_host, resolve_issue));
    gclaim_instance *instance = open_ledger(plugin, &host, directory);
    must(plugin, instance, "ann", "collab-lease acquire r 42", GCLAIM_WRITE, 0);
    plugin->close(instance);

    /* Nothing optional at all; a claim outlives trouble with the tracker. */
    host = cut(offsetof(gclaim_host, read));
    instance = open_ledger(plugin, &host, directory);
    must(plugin, instance, "ann", "collab-lease list r", GCLAIM_READ, 0);
    must(plugin, instance, "ann", "collab-lease renew r 42 --ttl 60", GCLAIM_WRITE, 0);
    must(plugin, instance, "bob", "collab-lease renew r 42 --ttl 60", GCLAIM_WRITE, 4);
    plugin->close(instance);
}

/* The memory that the process has now, in KiB. */
static long resident(void)
{
    long pages, all;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &all, &pages) == 2);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* A host that lives for long: 100,000 calls, and every now and then another
 * instance. Prints the memory after the first 10,000, and after all. */
static void scene_many(const gclaim_plugin *plugin)
{
    static const struct {
        const char *user, *command;
        uint32_t wanted;
    } ROUND[] = {
        {"ann", "collab-lease acquire r %d --ttl 60 --session s", 0},
        {"bob", "collab-lease acquire r %d", 4},
        {"bob", "collab-lease list r", 0},
        {"bob", "collab-lease show r %d", 0},
        {"bob", "collab-lease log r %d --limit 5", 0},
        {"bob", "collab-lease verify r %d --token 9999", 4},
        {"eve", "collab-lease list nowhere", 1},
        {"eve", "nonsense", 1},
        {"ann", "collab-lease list r --ended --limit 5", 0},
        {"ann", "collab-lease release r %d --session s", 0},
    };
    gclaim_host host = cut(offsetof(gclaim_host, resolve_issue));
    gclaim_instance *instance = open_ledger(plugin, &host, directory);
    for (int calls = 0; calls < 100000;) {
        int issue = calls / 10 % 100;
        for (size_t i = 0; i < sizeof ROUND / sizeof *ROUND; i++, calls++) {
            struct call call;
            uint32_t exit_code;
            char command[100];
            snprintf(command, sizeof command, ROUND[i].command, issue);
            CHECK(exec_as(plugin, instance, ROUND[i].user, command, GCLAIM_WRITE, &call,
                          &exit_code) == GCLAIM_OK);
            CHECK(exit_code == ROUND[i].wanted);
        }
        if (calls % 1000 == 0) {
            plugin->close(instance);
            instance = open_ledger(plugin, &host, directory);
        }
        if (calls == 10000 || calls == 100000)
            printf("%d %ld\n", calls, resident());
    }
    plugin->close(instance);
}

/* -- what no host should send ------------------------------------------------- */

static uint64_t state;

/* A number below `limit` (xorshift). */
static uint64_t below(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

/* A struct's `size`: right, too small, too large, or absurd. */
static uint32_t any_size(size_t right)
{
    switch (below(4)) {
    case 0:
        return (uint32_t)below(right + 1);
    case 1:
        return (uint32_t)(right + below(64));
    case 2:
        return UINT32_MAX - (uint32_t)below(2);
    default:
        return (uint32_t)right;
    }
}

/* As much of `whole` as a struct of `size` has, and not a byte more: what is
 * read behind it is found under valgrind. */
static void *cut_off(const void *whole, size_t right, uint32_t size)
{
    size_t length = size < sizeof size ? sizeof size : size;
    char *copy;
    if (length > right + 64)
        length = right + 64;
    copy = calloc(1, length);
    CHECK(copy);
    memcpy(copy, whole, length < right ? length : right);
    memcpy(copy, &size, sizeof size);
    return copy;
}

/* A string in memory of its own: as it is, cut off, changed, not there at all,
 * or longer than any memory. `*memory` is to be freed. */
static gclaim_str any_str(const char *text, char **memory)
{
    size_t length = strlen(text);
    gclaim_str s = {NULL, 0};
    *memory = NULL;
    switch (below(12)) {
    case 0:
        return s;
    case 1:
        s.len = 1 + below(100);
        return s;
    case 2:
        length = below(length + 1);
        break;
    }
    *memory = malloc(length + 1);
    CHECK(*memory);
    memcpy(*memory, text, length);
    /* Exactly so many bytes: no zero behind them. */
    *memory = realloc(*memory, length ? length : 1);
    CHECK(*memory);
    s.ptr = *memory;
    s.len = length;
    switch (below(12)) {
    case 0:
        s.len = SIZE_MAX - below(2);
        break;
    case 1:
        s.len = SIZE_MAX / 2 + 1;
        break;
    case 2:
    case 3:
        for (uint64_t changes = 1 + below(4); length && changes; changes--)
            (*memory)[below(length)] = (char)below(256);
        break;
    }
    return s;
}

/* Whether a call may end so. */
static int is_answer(int32_t status)
{
    return status <= GCLAIM_OK && status > GCLAIM_EFORKED;
}

static const char *const COMMANDS[] = {
    "collab-lease acquire r 42 --ttl 60 --session s",
    "collab-lease release r 42 --session s",
    "collab-lease renew r 42 --ttl 60 --session s --token 1",
    "collab-lease list r --limit 5",
    "collab-lease log r 42 --limit 5",
    "collab-lease whoami",
    "collab-lease fence r",
    "collab-lease settle r",
    "collab-lease serve r",
    "collab-lease",
};

static void any_exec(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    struct call call = {.allowed = (uint32_t)below(5)};
    gclaim_request whole = {.call = &call};
    char *memory[3];
    void *request;
    uint32_t exit_code = 255;
    int32_t status;
    uint32_t size = any_size(sizeof whole);
    whole.flags = below(4) ? 0 : (uint32_t)below(4);
    whole.command = any_str(COMMANDS[below(sizeof COMMANDS / sizeof *COMMANDS)], memory);
    whole.user = any_str("ann", memory + 1);
    whole.key = any_str("SHA256:key", memory + 2);
    whole.deadline_ms = below(4) ? 0 : (uint32_t)(1 + below(1000));
    whole.reserved = below(8) == 0;
    request = cut_off(&whole, sizeof whole, size);
    status = plugin->exec(instance, request, &exit_code);
    CHECK(is_answer(status));
    CHECK((status == GCLAIM_OK) == (exit_code != 255));
    CHECK(exit_code == 255 || exit_code <= 6);
    free(request);
    for (int i = 0; i < 3; i++)
        free(memory[i]);
}

static void any_query(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    struct call call = {.allowed = (uint32_t)below(5)};
    struct output answer = {{0}, 0};
    gclaim_sink sink = {&answer, append};
    gclaim_query whole = {.call = &call};
    char *memory[3];
    void *query;
    uint32_t size = any_size(sizeof whole);
    whole.flags = below(8) == 0;
    whole.name = any_str(below(2) ? "claims" : "claim", memory);
    whole.params = any_str("{\"repo\":\"r\",\"issue\":\"42\"}", memory + 1);
    whole.user = any_str("ann", memory + 2);
    whole.reserved = below(8) == 0;
    if (below(8) == 0)
        sink.write = NULL;
    query = cut_off(&whole, sizeof whole, size);
    CHECK(is_answer(plugin->query(instance, query, &sink)));
    free(query);
    for (int i = 0; i < 3; i++)
        free(memory[i]);
}

static void any_open(const gclaim_plugin *plugin)
{
    char settings[4096];
    struct output why = {{0}, 0};
    gclaim_sink sink = {&why, append};
    gclaim_config whole = {.flags = below(8) == 0};
    gclaim_instance *instance = NULL;
    gclaim_host any = HOST;
    char *memory;
    void *host, *config;
    int32_t status;
    snprintf(settings, sizeof settings, "{\"ledger\":\"%s/collab.db\",\"max_ttl\":60}",
             directory);
    whole.settings = any_str(settings, &memory);
    switch (below(8)) {
    case 0:
        any.log = NULL;
        break;
    case 1:
        any.write = NULL;
        break;
    case 2:
        any.repo_path = host_repo_path;
        break;
    }
    /* A larger one has members that nobody knows yet. */
    host = cut_off(&any, sizeof any, any_size(sizeof any));
    config = cut_off(&whole, sizeof whole, any_size(sizeof whole));
    status = plugin->open(host, config, &instance, &sink);
    CHECK(is_answer(status));
    CHECK((status == GCLAIM_OK) == (instance != NULL));
    plugin->close(instance);
    free(host);
    free(config);
    free(memory);
}

/* 2,000 calls, or a fifth of what $FUZZ_INPUTS says, at random from the seed
 * $FUZZ_SEED. */
static void scene_fuzz(const gclaim_plugin *plugin, gclaim_instance *instance)
{
    const char *inputs = getenv("FUZZ_INPUTS"), *seed = getenv("FUZZ_SEED");
    const long long all = inputs ? atoll(inputs) : 10000;
    state = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) << 16 | (uint64_t)getpid();
    state += state == 0;
    fprintf(stderr, "FUZZ_SEED=%llu\n", (unsigned long long)state);
    for (long long left = all; left > 0; left--) {
        switch (below(8)) {
        case 0:
            any_open(plugin);
            break;
        case 1:
        case 2:
            any_query(plugin, instance);
            break;
        default:
            any_exec(plugin, instance);
        }
    }
    must(plugin, instance, "zoe", "collab-lease list r", GCLAIM_READ, 0);
    printf("%lld inputs\n", all);
}

int main(int argc, char **argv)
{
    const gclaim_plugin *plugin;
    gclaim_instance *instance;
    gclaim_host host = HOST;

    if (argc == 2 && strcmp(argv[1], "layout") == 0) {
        layout();
        return 0;
    }
    CHECK(argc == 5 && strcmp(argv[1], "run") == 0);
    plugin = load(argv[2]);
    CHECK(GCLAIM_HAS(gclaim_plugin, plugin, close));

    directory = argv[3];
    if (strcmp(argv[4], "short") == 0) {
        scene_short(plugin);
        return 0;
    }
    if (strcmp(argv[4], "many") == 0) {
        scene_many(plugin);
        return 0;
    }

    instance = open_ledger(plugin, &host, argv[3]);
    if (strcmp(argv[4], "acquire") == 0)
        scene_acquire(plugin, instance);
    else if (strcmp(argv[4], "list") == 0)
        scene_list(plugin, instance);
    else if (strcmp(argv[4], "denied") == 0)
        scene_denied(plugin, instance);
    else if (strcmp(argv[4], "fork") == 0)
        scene_fork(plugin, instance);
    else if (strcmp(argv[4], "threads") == 0)
        scene_threads(plugin, instance);
    else if (strcmp(argv[4], "query") == 0)
        scene_query(plugin, instance);
    else if (strcmp(argv[4], "contract") == 0)
        scene_contract(plugin, instance);
    else if (strcmp(argv[4], "fuzz") == 0)
        scene_fuzz(plugin, instance);
    else
        CHECK(!"a scene");
    plugin->close(instance);
    return 0;
}
