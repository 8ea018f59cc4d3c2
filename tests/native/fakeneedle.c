/* A stand-in for the vendor's engine library, so that the native backend can be tested without it.
 *
 *   gcc -shared -fPIC -O1 -DGENERATION=2 -o fake2.so fakeneedle.c
 *   gcc -shared -fPIC -O1 -DGENERATION=3 -o fake3.so fakeneedle.c
 *
 * It keeps the habits of the real one that hurt: one global session, no lock (a second thread inside it aborts the
 * process), an output buffer that is cut without a word, and chatter on standard output.
 *
 *   NEEDLE_FAKE_SCRIPT  lines "needle<TAB>answer": the first whose needle stands in the text wins, "*" always does.
 *                       An answer may begin with directives: "@sleep=MS ", "@code=N " (the call returns N),
 *                       "@crash ", "@hang ", "@leak=MB ", "@spaces=N " (N spaces instead of an answer).
 *   NEEDLE_FAKE_LOG     one line "pid<TAB>thread<TAB>operation<TAB>argument" for each entry
 *   NEEDLE_FAKE_NOISE   if set, every entry prints a line to standard output
 *   NEEDLE_FAKE_WINDOW  the longest prefix of system and tools in bytes
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef GENERATION
#define GENERATION 2
#endif
#define EXPORT __attribute__((visibility("default")))
#define TAG (GENERATION == 3 ? 0x05E12A84u : 0x05E12A83u)

static const char NO_CALL[] =
    "{\"type\":\"respond\",\"success\":true,\"error\":null,\"error_code\":null,\"function_calls\":[],"
    "\"reasoning\":\"No tool fits.\",\"confidence\":0.0,\"prefill_tps\":900.0,\"decode_tps\":210.0,\"peak_ram_mb\":28.0}";

static volatile int inside;
static int weights_loaded, session_open, turns;

static void record(const char *operation, const char *argument) {
    const char *path = getenv("NEEDLE_FAKE_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%ld\t%lu\t%s\t%s\n", (long)getpid(), (unsigned long)pthread_self(), operation, argument);
        fclose(log);
    }
    if (getenv("NEEDLE_FAKE_NOISE")) {
        printf("fakeneedle: %s\n", operation);
        fflush(stdout);
    }
}

static void enter(const char *operation, const char *argument) {
    if (__sync_lock_test_and_set(&inside, 1)) {
        fprintf(stderr, "fakeneedle: two threads inside, the second in %s\n", operation);
        abort();
    }
    record(operation, argument);
}

static int leave(int result) {
    __sync_lock_release(&inside);
    return result;
}

/* As the real engine does it: what does not fit is dropped, and nothing tells. */
static int put(char *out, int capacity, const char *text) {
    size_t length = strlen(text);
    if (!out || capacity < 1) return -1;
    if (length > (size_t)capacity - 1) length = (size_t)capacity - 1;
    memcpy(out, text, length);
    out[length] = 0;
    return (int)length;
}

/* The script's answer for a text, to be freed; NULL when no line matches. */
static char *scripted(const char *text) {
    const char *path = getenv("NEEDLE_FAKE_SCRIPT");
    FILE *script = path ? fopen(path, "r") : NULL;
    char *line = NULL, *found = NULL;
    size_t size = 0;
    ssize_t length;
    while (script && !found && (length = getline(&line, &size, script)) > 0) {
        if (line[length - 1] == '\n') line[length - 1] = 0;
        char *tab = strchr(line, '\t');
        if (!tab) continue;
        *tab = 0;
        if (!strcmp(line, "*") || strstr(text, line)) found = strdup(tab + 1);
    }
    free(line);
    if (script) fclose(script);
    return found;
}

static char *volatile kept; /* volatile, or the compiler would not allocate what nobody reads */

static void leak(int megabytes) {
    kept = malloc((size_t)megabytes << 20);
    if (kept) memset(kept, 1, (size_t)megabytes << 20);
}

/* Obey the directives at the head of an answer; returns where it goes on. `code` gets the result to return. */
static const char *obey(const char *answer, int *code, int *spaces) {
    int number;
    while (*answer == '@') {
        if (sscanf(answer, "@sleep=%d", &number) == 1) usleep((useconds_t)number * 1000);
        else if (sscanf(answer, "@code=%d", &number) == 1) *code = number;
        else if (sscanf(answer, "@leak=%d", &number) == 1) leak(number);
        else if (sscanf(answer, "@spaces=%d", &number) == 1) *spaces = number;
        else if (!strncmp(answer, "@crash", 6)) raise(SIGSEGV);
        else if (!strncmp(answer, "@hang", 5)) for (;;) pause();
        answer = strchr(answer, ' ');
        if (!answer) return "";
        answer++;
    }
    return answer;
}

static int complete(const char *text, char *out, int capacity) {
    enter("complete", text);
    if (!session_open) {
        put(out, capacity, "{\"type\":\"error\",\"error\":\"needle_init not called\"}");
        return leave(-1);
    }
    turns++;
    char *line = scripted(text);
    int code = 0, spaces = 0, written;
    const char *answer = obey(line ? line : NO_CALL, &code, &spaces);
    if (spaces) {
        char *blank = malloc((size_t)spaces + 1);
        memset(blank, ' ', (size_t)spaces);
        blank[spaces] = 0;
        written = put(out, capacity, blank);
        free(blank);
    } else {
        written = put(out, capacity, answer);
    }
    free(line);
    return leave(code < 0 ? code : written);
}

EXPORT int needle_load(const unsigned char *archive, unsigned long long size) {
    unsigned tag = 0;
    enter("load", "");
    if (archive && size >= sizeof tag) memcpy(&tag, archive, sizeof tag);
    if (tag != TAG) return leave(-1);
    weights_loaded = 1;
    session_open = 0;
    return leave(0);
}

EXPORT int needle_init(const char *system, const char *tools, const char *index) {
    const char *window = getenv("NEEDLE_FAKE_WINDOW");
    size_t prefix = strlen(system) + strlen(tools);
    if (index) { enter("index", index); leave(0); }
    enter("init", tools);
    if ((GENERATION >= 3 && !weights_loaded) || (window && prefix > (size_t)atol(window))) return leave(-1);
    session_open = 1;
    turns = 0;
    return leave((int)(prefix / 4));
}

EXPORT void needle_reset(void) {
    enter("reset", "");
    turns = 0;
    leave(0);
}

EXPORT const char *needle_last_error(void) { return "fakeneedle has no last error"; }

#if GENERATION >= 3
EXPORT int needle_complete(const char *text, const float *pcm, int samples, int max_new, char *out, int capacity) {
    (void)pcm, (void)samples, (void)max_new;
    return complete(text, out, capacity);
}
EXPORT int needle_embed(const char *text, const float *pcm, int samples, float *out, int capacity) {
    (void)text, (void)pcm, (void)samples, (void)out, (void)capacity;
    return -1;
}
#else
EXPORT int needle_complete(const char *text, int max_new, char *out, int capacity) {
    (void)max_new;
    return complete(text, out, capacity);
}
#endif
